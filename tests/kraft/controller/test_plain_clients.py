"""Quotas and delegation tokens that clients ask for, beside a plain list of them; each seed is another history."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from barnabas.kraft.controller import token_index
from barnabas.kraft.controller.request_limits import COUNTED_PER_ITEM
from barnabas.kraft.controller.state import Asked
from barnabas.kraft.metadata.delegation_tokens import token_hmac
from barnabas.kraft.metadata.image import QuotaEntity
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from barnabas.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.runtime.identity import Principal
from tests.kraft.controller.conftest import Cluster, PlainPace, finish

E = ErrorCode
USER_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
WHOLE = {"producer_byte_rate": 2**63, "consumer_byte_rate": 2**63, "connection_creation_rate": 2**31 - 1}
"""Keys with whole numbers, and the greatest of them. As a double, the greatest LONG is 2^63."""
ENTITIES: tuple[QuotaEntity, ...] = (
    (("user", "ann"),),
    (("user", None),),
    (("user", "bob"), ("client-id", "app")),
    (("client-id", None), ("user", None)),
    (("ip", "10.0.0.1"),),
    (("ip", None),),
    (("ip", "nowhere"),),
    (("ip", "10.0.0.1"), ("user", "ann")),
    (("user", ""),),
    (("group", "g"),),
    (("user", "cid"), ("user", "ann")),
    (),
)
VALUES = (1.0, 2.0, 0.5, 1.0000005, 1.00001, 0.0, -1.0, 2.0**31 - 1, 2.0**31, 2.0**63, 2.0**64, float("nan"))


def shown(entity: QuotaEntity) -> str:
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def wrong_entity(entity: QuotaEntity) -> str | None:
    kinds = [kind for kind, _ in entity]
    if not entity:
        return "Invalid empty client quota entity"
    for kind, name in entity:
        if kind not in ("user", "client-id", "ip"):
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if "ip" in kinds and len(kinds) > 1:
        return "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
    return "nowhere is not a valid IP address" if ("ip", "nowhere") in entity else None


def wrong_value(entity: QuotaEntity, key: str, value: float) -> str | None:
    keys = ("connection_creation_rate",) if entity[0][0] == "ip" else USER_KEYS
    if key not in keys:
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    if key not in WHOLE:
        return None
    if value > WHOLE[key]:
        return f"Proposed value for {key} is too large for {'an INT' if WHOLE[key] < 2**32 else 'a LONG'}."
    return f"{key} cannot be a fractional value." if value - int(value) > 1e-6 else None


class Quotas:
    """A cluster whose quotas change, and a plain dictionary of them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.cluster = Cluster()
        self.plain: dict[QuotaEntity, dict[str, float]] = {}

    def an_entry(self) -> RequestEntryData:
        chance = self.chance
        entity = chance.choice(ENTITIES[:6] if chance.random() < 0.8 else ENTITIES)
        of_ip = bool(entity) and entity[0][0] == "ip"
        ops = []
        for _ in range(chance.choice([0, 1, 1, 2, 3])):
            key = "connection_creation_rate" if of_ip else chance.choice(USER_KEYS)
            key = key if chance.random() < 0.9 else chance.choice(["connection_creation_rate", "x", USER_KEYS[0]])
            value = chance.choice(VALUES[:2] if chance.random() < 0.7 else VALUES)
            ops.append(OpData(key=key, value=value, remove=chance.random() < 0.3))
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        return RequestEntryData(entity=parts, ops=ops)

    def alter(self) -> None:
        count = self.chance.choice([1, 2, 3, 3, 20])
        request = AlterClientQuotasRequest(
            entries=[self.an_entry() for _ in range(count)], validate_only=self.chance.random() < 0.2
        )
        answers, changed, pace = self.answers(request)
        records, notes = [], []
        after = {entity: dict(quotas) for entity, quotas in self.plain.items()}
        for entity, changes in changed.items():
            quotas = after.setdefault(entity, {})
            news = {key: value for key, value in changes.items() if quotas.get(key) != value}
            pace.add(1 + len(news))
            records += [(entity, key, value or 0.0, value is None) for key, value in news.items()]
            quotas.update({key: value for key, value in news.items() if value is not None})
            after[entity] = {key: value for key, value in quotas.items() if news.get(key, value) is not None}
            if news:
                name = ", ".join(f"{kind} {name or '<default>'}" for kind, name in entity)
                asked = ", ".join(f"{key}={'none' if value is None else value}" for key, value in news.items())
                notes.append((name, f"quotas of {name} are changed", f"User:admin asked for {asked}"))
        self.check(request, answers, ([], [], pace) if request.validate_only else (records, notes, pace))
        if not request.validate_only:
            self.plain = {entity: quotas for entity, quotas in after.items() if quotas}
        assert self.cluster.image.others.quotas == self.plain

    def answers(self, request: AlterClientQuotasRequest) -> tuple[dict[QuotaEntity, str | None], Any, PlainPace]:
        """The error of each entity, and the changes of those without one."""
        answers: dict[QuotaEntity, str | None] = {}
        changed: dict[QuotaEntity, dict[str, float | None]] = {}
        pace = PlainPace()
        for _ in request.entries:
            pace.add(per_item=COUNTED_PER_ITEM)
        for entry in request.entries:
            entity = tuple(sorted({it.entity_type: it.entity_name for it in entry.entity}.items()))
            keys = [op.key for op in entry.ops]
            twice = next((key for place, key in enumerate(keys) if key in keys[:place]), None)
            if entity in answers:
                error: str | None = f"Ignoring duplicate entity {shown(entity)}"
            elif twice is not None:
                error = f"Duplicate quota key {twice} not updating quota for this entity {shown(entity)}"
            else:
                error = wrong_entity(entity)
                wrong = (
                    [wrong_value(entity, op.key, op.value) for op in entry.ops if not op.remove] if not error else []
                )
                error = next((it for it in wrong if it is not None), error)
            answers[entity] = error
            changed.pop(entity, None)
            if error is None:
                changed[entity] = {op.key: None if op.remove else op.value for op in entry.ops}
            pace.add(1 + len(entry.ops))
        return answers, changed, pace

    def check(self, request: AlterClientQuotasRequest, answers: dict[QuotaEntity, str | None], expected: Any) -> None:
        cluster = self.cluster
        asked = Asked(Principal("admin"), cluster.wall_ms)
        took: list[int] = []
        decision = cluster.controller.decide(request, 1, len(cluster.log), cluster.now_ms, asked)
        result: Any = finish(decision, lambda: took.append(1))
        cluster.append(result)
        found = {
            tuple((it.entity_type, it.entity_name) for it in each.entity): (each.error_code, each.error_message)
            for each in result.response.entries
        }
        codes = {entity: (E.NONE if why is None else E.INVALID_REQUEST, why) for entity, why in answers.items()}
        assert found == codes and len(result.response.entries) == len(codes)
        records, notes, pace = expected
        written = [
            (tuple((it.entity_type, it.entity_name) for it in each.entity), each.key, each.value, each.remove)
            for each in result.records
        ]
        assert written == records
        assert [(it.subject, it.text, it.cause) for it in result.notes] == notes
        assert len(took) == 1 + pace.steps and result.is_long == (pace.steps > 0)


@pytest.mark.feature("QU-04", "QU-08")
@pytest.mark.parametrize("seed", range(20))
def test_quotas_are_those_of_a_plain_dictionary(seed: int) -> None:
    quotas = Quotas(random.Random(seed))
    for _ in range(25):
        quotas.alter()


# -- delegation tokens

SECRET = "the key of the cluster"
MOST_MS, PERIOD_MS, CHECK_MS = 10_000, 3_000, 5_000
COMPUTED_IN_A_STEP = 2
USERS = (Principal("ann"), Principal("bob"), Principal("cid"))


class PlainToken(NamedTuple):
    token_id: str
    owner: str
    renewers: tuple[str, ...]
    most_ms: int
    expiry_ms: int


class Tokens:
    """A cluster with tokens, and a plain list of them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.cluster = Cluster(
            delegation_token_secret_key=SECRET,
            delegation_token_max_lifetime_ms=MOST_MS,
            delegation_token_expiry_time_ms=PERIOD_MS,
            delegation_token_expiry_check_interval_ms=CHECK_MS,
        )
        self.plain: dict[bytes, PlainToken] = {}
        self.indexed: set[bytes] = set()
        """Tokens whose HMACs were computed for an earlier request."""
        self.swept_ms = self.cluster.now_ms

    def says(self, token: PlainToken, done: str, cause: str) -> None:
        story = self.cluster.story(f"token {token.token_id}")
        assert story[-1] == f"the delegation token {token.token_id} of {token.owner} {done}: {cause}"

    def create(self) -> None:
        chance, cluster = self.chance, self.cluster
        by, owner = chance.choice(USERS), chance.choice((None, None, *USERS))
        life_ms = chance.choice([-1, 0, 1, 2_000, 3_000, MOST_MS, MOST_MS + 1])
        renewers = chance.sample(USERS, chance.choice([0, 1, 2]))
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=None if owner is None else owner.name,
            max_lifetime_ms=life_ms,
            renewers=[CreatableRenewers(principal_type="User", principal_name=it.name) for it in renewers],
        )
        version = chance.choice([2, 3])
        answer = cluster.send(request, version, by=by)
        now_ms, owner = cluster.wall_ms, owner or by
        most_ms = now_ms + (min(life_ms, MOST_MS) if life_ms > 0 else MOST_MS)
        token = PlainToken(
            answer.token_id,
            f"User:{owner.name}",
            tuple(f"User:{it.name}" for it in renewers),
            most_ms,
            min(most_ms, now_ms + PERIOD_MS),
        )
        assert (answer.error_code, answer.hmac) == (E.NONE, token_hmac(SECRET, token.token_id))
        times = (answer.issue_timestamp_ms, answer.max_timestamp_ms, answer.expiry_timestamp_ms)
        assert times == (now_ms, token.most_ms, token.expiry_ms)
        requester = (answer.token_requester_principal_type, answer.token_requester_principal_name)
        assert requester == (("User", by.name) if version >= 3 else ("", ""))
        assert (answer.principal_type, answer.principal_name) == ("User", owner.name)
        self.plain[answer.hmac] = token
        self.says(token, "is created", f"{by} asked for it")

    def refusal(self, hmac: bytes, by: Principal, *, removes: bool) -> ErrorCode:
        token = self.plain.get(hmac)
        if token is None:
            return E.DELEGATION_TOKEN_NOT_FOUND
        is_expired = self.cluster.wall_ms > min(token.most_ms, token.expiry_ms)
        may = str(by) in (token.owner, *token.renewers)
        if not may:
            return E.DELEGATION_TOKEN_OWNER_MISMATCH
        return E.DELEGATION_TOKEN_EXPIRED if is_expired and not removes else E.NONE

    def change(self) -> None:
        """One is renewed, gets another expiry or is removed; perhaps by a stranger, or after its end."""
        chance, cluster = self.chance, self.cluster
        hmac = chance.choice([*self.plain, b"unknown"])
        by, renews = chance.choice(USERS), chance.random() < 0.5
        period_ms = chance.choice([-1, 0, 1, 2_000, PERIOD_MS, PERIOD_MS + 1, 2 * MOST_MS])
        request: Any = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        if not renews:
            request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        removes = not renews and period_ms < 0
        expected = self.refusal(hmac, by, removes=removes)
        took: list[int] = []
        asked, version = Asked(by, cluster.wall_ms), request.VERSIONS.highest
        decision = cluster.controller.decide(request, version, len(cluster.log), cluster.now_ms, asked)
        result: Any = finish(decision, lambda: took.append(1))
        cluster.append(result)
        answer = result.response
        assert len(took) == 1 + len(self.plain.keys() - self.indexed) // COMPUTED_IN_A_STEP
        assert result.is_long == (len(took) > 1)
        self.indexed = {*self.plain}
        if expected is E.DELEGATION_TOKEN_OWNER_MISMATCH and renews and self.is_over(self.plain[hmac]):
            expected = E.DELEGATION_TOKEN_EXPIRED
        assert answer.error_code == expected
        if expected is not E.NONE:
            return
        token, now_ms, cause = self.plain[hmac], cluster.wall_ms, f"{by} asked for it"
        if removes:
            del self.plain[hmac]
            assert answer.expiry_timestamp_ms == now_ms
            self.says(token, "is removed", cause)
            return
        wanted_ms = period_ms if not renews else min(PERIOD_MS, period_ms) if period_ms > 0 else PERIOD_MS
        self.plain[hmac] = token._replace(expiry_ms=min(token.most_ms, now_ms + wanted_ms))
        assert answer.expiry_timestamp_ms == self.plain[hmac].expiry_ms
        self.says(token, "is renewed" if renews else "gets another expiry", cause)

    def is_over(self, token: PlainToken) -> bool:
        return self.cluster.wall_ms > min(token.most_ms, token.expiry_ms)

    def wait(self) -> None:
        cluster, chance = self.cluster, self.chance
        ends = [min(it.most_ms, it.expiry_ms) - cluster.wall_ms for it in self.plain.values()]
        time_ms = chance.choice([1, 1_000, *[end for end in ends if end > 0], *[end + 1 for end in ends if end > 0]])
        cluster.wall_ms += time_ms
        cluster.now_ms += time_ms
        cluster.work()
        if cluster.now_ms >= self.swept_ms + CHECK_MS:
            self.swept_ms = cluster.now_ms
            for hmac, token in list(self.plain.items()):
                if self.is_over(token):
                    del self.plain[hmac]
                    self.says(token, "is removed", "it is expired")

    def check(self) -> None:
        known = {
            it.token_id: (it.owner, tuple(it.renewers), it.max_timestamp, it.expiration_timestamp)
            for it in self.cluster.image.others.delegation_tokens.values()
        }
        assert known == {it.token_id: tuple(it)[1:] for it in self.plain.values()}


@pytest.mark.feature("SE-07")
@pytest.mark.parametrize("seed", range(10))
def test_tokens_are_those_of_a_plain_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_index, "COMPUTED_IN_A_STEP", COMPUTED_IN_A_STEP)
    tokens = Tokens(random.Random(seed))
    for _ in range(40):
        tokens.chance.choice([tokens.create, tokens.change, tokens.change, tokens.change, tokens.wait])()
        tokens.check()
