"""Tokens are created, renewed, expired and swept (KIP-48, KIP-373)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.kraft.controller import token_index
from barnabas.kraft.controller.state import Asked, ControllerResult
from barnabas.kraft.controller.token_index import COMPUTED_IN_A_STEP, TokenIndex
from barnabas.kraft.metadata.delegation_tokens import token_hmac, token_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.metadata_log import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.runtime.identity import Principal
from tests.kraft.controller.conftest import finish

KEY = "the key of the cluster"
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
NEVER_MS = 2**63 - 1
ALICE, BOB, CAROL = Principal("alice"), Principal("bob"), Principal("carol")


@pytest.fixture
def cluster(make_cluster: Callable[..., Any]) -> Any:
    return make_cluster(delegation_token_secret_key=KEY)


def create(cluster: Any, by: Principal = ALICE, **fields: Any) -> Any:
    request = CreateDelegationTokenRequest(max_lifetime_ms=fields.pop("max_lifetime_ms", -1))
    for name, value in fields.items():
        setattr(request, name, value)
    return cluster.send(request, by=by)


def renew(cluster: Any, token: bytes, by: Principal = ALICE, period_ms: int = -1) -> Any:
    return cluster.send(RenewDelegationTokenRequest(hmac=token, renew_period_ms=period_ms), by=by)


def expire(cluster: Any, token: bytes, by: Principal = ALICE, period_ms: int = -1) -> Any:
    return cluster.send(ExpireDelegationTokenRequest(hmac=token, expiry_time_period_ms=period_ms), by=by)


def may_renew(*names: str) -> list[CreatableRenewers]:
    return [CreatableRenewers(principal_type="User", principal_name=name) for name in names]


@pytest.mark.feature("SE-07", "AD-07")
def test_a_token_lives_a_day_and_can_be_renewed_for_a_week(cluster: Any) -> None:
    token = create(cluster, renewers=may_renew("bob"))
    assert token.error_code == 0
    assert token.hmac == hmac.new(KEY.encode(), token.token_id.encode(), hashlib.sha512).digest()
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    issued = cluster.wall_ms
    assert (token.issue_timestamp_ms, token.expiry_timestamp_ms) == (issued, issued + DAY_MS)
    assert token.max_timestamp_ms == issued + 7 * DAY_MS

    cluster.wall_ms += DAY_MS
    assert renew(cluster, token.hmac, BOB).expiry_timestamp_ms == issued + 2 * DAY_MS
    assert renew(cluster, token.hmac, BOB, 5).expiry_timestamp_ms == cluster.wall_ms + 5
    assert renew(cluster, token.hmac, BOB, 2 * DAY_MS).expiry_timestamp_ms == cluster.wall_ms + DAY_MS
    for _ in range(5):
        cluster.wall_ms += DAY_MS
        assert renew(cluster, token.hmac).error_code == 0
    cluster.wall_ms += DAY_MS
    assert renew(cluster, token.hmac).expiry_timestamp_ms == issued + 7 * DAY_MS, "and no longer"
    cluster.wall_ms += 1
    assert renew(cluster, token.hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


@pytest.mark.feature("SE-07")
def test_a_login_gets_the_owner_the_secret_and_the_expiry(cluster: Any) -> None:
    token = create(cluster)
    login = token_of(cluster.image, token.token_id, KEY)
    assert login is not None
    assert (login.owner, login.hmac, login.expiry_ms) == (ALICE, token.hmac, token.expiry_timestamp_ms)
    assert token_of(cluster.image, "no such id", KEY) is None
    assert token.hmac.hex() not in repr(login) and str(token.hmac) not in repr(login)
    assert KEY not in repr(cluster.controller.defaults)


@pytest.mark.feature("SE-07")
def test_a_token_for_another_owner_belongs_to_that_owner(cluster: Any) -> None:
    token = create(cluster, BOB, owner_principal_type="User", owner_principal_name="alice")
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "bob")
    record = cluster.image.others.delegation_tokens[token.token_id]
    assert (record.owner, record.requester, record.renewers) == ("User:alice", "User:bob", [])
    assert renew(cluster, token.hmac, BOB).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(cluster, token.hmac, ALICE).error_code == 0


@pytest.mark.feature("SE-07")
def test_old_clients_do_not_get_the_requester(cluster: Any) -> None:
    answer = cluster.send(CreateDelegationTokenRequest(max_lifetime_ms=-1), 2, by=ALICE)
    assert (answer.principal_name, answer.token_requester_principal_name) == ("alice", "")


@pytest.mark.feature("SE-07")
def test_a_shorter_life_is_granted_a_longer_one_is_not(cluster: Any) -> None:
    short, long = create(cluster, max_lifetime_ms=HOUR_MS), create(cluster, max_lifetime_ms=NEVER_MS)
    assert short.max_timestamp_ms == short.expiry_timestamp_ms == cluster.wall_ms + HOUR_MS
    assert long.max_timestamp_ms == cluster.wall_ms + 7 * DAY_MS
    assert create(cluster, max_lifetime_ms=0).max_timestamp_ms == cluster.wall_ms + 7 * DAY_MS


@pytest.mark.feature("SE-07")
def test_lifetimes_do_not_overflow(make_cluster: Any) -> None:
    cluster = make_cluster(
        delegation_token_secret_key=KEY,
        delegation_token_max_lifetime_ms=NEVER_MS,
        delegation_token_expiry_time_ms=NEVER_MS,
    )
    token = create(cluster)
    assert token.max_timestamp_ms == token.expiry_timestamp_ms == NEVER_MS
    assert renew(cluster, token.hmac).expiry_timestamp_ms == NEVER_MS
    assert expire(cluster, token.hmac, period_ms=NEVER_MS).expiry_timestamp_ms == NEVER_MS


@pytest.mark.feature("SE-07")
def test_a_token_ends_at_once_or_later(cluster: Any) -> None:
    now, later = create(cluster), create(cluster, renewers=may_renew("bob"))
    gone = expire(cluster, now.hmac)
    assert (gone.error_code, gone.expiry_timestamp_ms) == (0, cluster.wall_ms)
    assert list(cluster.image.others.delegation_tokens) == [later.token_id]
    assert renew(cluster, now.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert expire(cluster, later.hmac, BOB, HOUR_MS).expiry_timestamp_ms == cluster.wall_ms + HOUR_MS
    assert expire(cluster, later.hmac, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    cluster.wall_ms += HOUR_MS + 1
    assert expire(cluster, later.hmac, BOB, HOUR_MS).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(cluster, later.hmac, BOB).error_code == 0, "an expired one can still be removed"


@pytest.mark.feature("SE-07")
def test_a_stranger_learns_nothing_from_an_unknown_token(cluster: Any) -> None:
    create(cluster)
    for ask in (renew, expire):
        assert ask(cluster, b"x" * 64).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert ask(cluster, b"").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.feature("SE-07")
def test_only_users_have_tokens(cluster: Any) -> None:
    """A login has only the owner's name: the token of a group would make a user of it."""
    for kind in ("Group", "user", ""):
        refused = create(cluster, owner_principal_type=kind, owner_principal_name="alice")
        assert (refused.error_code, refused.token_id) == (ErrorCode.INVALID_PRINCIPAL_TYPE, "")
    of_kafka = DelegationTokenRecord(token_id="t", owner="Group:alice", requester="User:bob", max_timestamp=NEVER_MS)
    cluster.append(ControllerResult(None, [of_kafka]))
    assert token_of(cluster.image, "t", KEY) is None


@pytest.mark.feature("SE-07")
def test_only_users_may_renew(cluster: Any) -> None:
    refused = create(cluster, renewers=[CreatableRenewers(principal_type="Group", principal_name="g")])
    assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (refused.token_id, refused.hmac) == ("", b"")
    assert cluster.image.others.delegation_tokens == {}


@pytest.mark.feature("SE-07")
@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (
            {"delegation_token_secret_key": KEY, "levels": {"metadata.version": 13}},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_a_cluster_without_a_key_or_of_an_old_version_has_no_tokens(
    make_cluster: Any, settings: dict[str, Any], code: int
) -> None:
    cluster = make_cluster(**settings)
    assert [ask.error_code for ask in (create(cluster), renew(cluster, b"x"), expire(cluster, b"x"))] == [code] * 3


@pytest.mark.feature("SE-07")
def test_expired_tokens_are_swept_every_hour(cluster: Any) -> None:
    short = create(cluster, max_lifetime_ms=60_000)
    long = create(cluster)
    cluster.wall_ms += 60_001
    cluster.now_ms += HOUR_MS - 1
    cluster.work()
    assert list(cluster.image.others.delegation_tokens) == [short.token_id, long.token_id]
    cluster.now_ms += 1
    cluster.work()
    assert list(cluster.image.others.delegation_tokens) == [long.token_id]
    assert cluster.story(f"token {short.token_id}")[-1].endswith("is removed: it is expired")
    cluster.wall_ms += DAY_MS
    cluster.now_ms += HOUR_MS
    cluster.work()
    assert cluster.image.others.delegation_tokens == {}


@pytest.mark.feature("SE-07")
def test_a_sweep_writes_at_most_a_thousand_records_at_once(cluster: Any) -> None:
    for _ in range(1500):
        create(cluster, max_lifetime_ms=1000)
    cluster.wall_ms += 1001
    cluster.now_ms += HOUR_MS
    sizes = []
    original = cluster.append

    def append(result: Any) -> None:
        sizes.append(sum(isinstance(it, RemoveDelegationTokenRecord) for it in result.records))
        original(result)

    cluster.append = append
    cluster.work()
    assert [size for size in sizes if size] == [1000, 500]


@pytest.mark.feature("SE-07")
def test_a_new_leader_knows_the_tokens_that_were_committed_and_no_others(cluster: Any) -> None:
    kept = create(cluster)
    renew(cluster, kept.hmac)
    cluster.hold = True
    lost = create(cluster)
    assert renew(cluster, lost.hmac).error_code == 0, "decisions see what was appended"
    cluster.fail_over(2)
    assert renew(cluster, lost.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert renew(cluster, kept.hmac).error_code == 0


@pytest.mark.feature("SE-07")
def test_the_hmacs_of_many_tokens_are_computed_in_steps(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_index, "COMPUTED_IN_A_STEP", 2)
    token = [create(cluster) for _ in range(5)][-1]
    for expected in (3, 1):  # the second request finds them computed
        steps: list[int] = []
        request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=5)
        asked = Asked(ALICE, cluster.wall_ms)
        decision = cluster.controller.decide(request, 2, len(cluster.log), cluster.now_ms, asked)
        result = finish(decision, lambda: steps.append(1))  # noqa: B023 - called at once
        assert result.response.expiry_timestamp_ms == cluster.wall_ms + 5
        assert (len(steps), result.is_long) == (expected, expected > 1)


def test_an_image_whose_tokens_are_known_is_not_read_again() -> None:
    """Every request about a token looks it up; a cluster may have many."""

    class Tokens(dict[str, object]):
        reads = 0

        def __iter__(self) -> Any:
            self.reads += 1
            return super().__iter__()

    index, tokens = TokenIndex(), Tokens({str(number): None for number in range(COMPUTED_IN_A_STEP + 1)})
    assert list(index.follow(tokens, "key")) == [None], "in steps"
    seven = token_hmac("key", "7")
    assert index.token_id(seven) == "7" and index.token_id(token_hmac("other", "7")) is None
    reads = tokens.reads
    assert list(index.follow(tokens, "key")) == []
    assert tokens.reads == reads
    assert list(index.follow({"8": None}, "key")) == []
    assert index.token_id(seven) is None and index.token_id(token_hmac("key", "8")) == "8"
