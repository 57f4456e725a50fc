"""Delegation tokens through brokers (KIP-48, KIP-373): clients are who their connection proved them to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.broker.apis.delegation_tokens import TokenPorts
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_delegation_token as creating
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.request import Request
from barnabas.runtime.security import Secured
from barnabas.runtime.world import Connection
from simulation.invariants.work import MOST_CALLS
from tests.broker.apis.rig import Rig, on_cluster

KEY = {"delegation__token__secret__key": "the key of the cluster"}
ALICE, BOB, CAROL = Principal("alice"), Principal("bob"), Principal("carol")
DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Named:
    """Security of a listener whose clients are all this principal."""

    principal: Principal

    async def secure(self, connection: Connection) -> Secured:
        return Secured(connection, self.principal)


class Stage:
    """Connections to broker 1 by listeners of a protocol, each of one principal."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._channels: dict[tuple[Principal, str], Channel] = {}

    async def ask(self, principal: Principal, request: Message, protocol: str = "SASL_PLAINTEXT") -> Any:
        key = (principal, protocol)
        if key not in self._channels:
            rig, port = self.rig, 7000 + len(self._channels)
            broker = rig.broker(1)
            bound = await broker.world.network.listen(rig.name(1), port)
            rig.nursery.start_soon(broker.server.serve, bound, protocol, Named(principal))
            self._channels[key] = Channel(rig.world, rig.nursery, rig.name(1), port, client_id="story")
        return await self._channels[key].call(request, timeout_ms=60_000)

    async def create(self, principal: Principal, owner: str = "", renewers: tuple[str, ...] = ()) -> Any:
        request = creating.CreateDelegationTokenRequest(
            owner_principal_type="User" if owner else "",
            owner_principal_name=owner,
            renewers=[creating.CreatableRenewers(principal_type="User", principal_name=it) for it in renewers],
            max_lifetime_ms=-1,
        )
        response = await self.ask(principal, request)
        await self.rig.until(
            lambda: (
                response.error_code != 0
                or response.token_id in self.rig.broker(1).metadata.image.others.delegation_tokens
            )
        )
        return response

    async def described(self, principal: Principal, *owners: str) -> dict[str, Any]:
        wanted = [DescribeDelegationTokenOwner(principal_type="User", principal_name=it) for it in owners]
        response = await self.ask(principal, DescribeDelegationTokenRequest(owners=wanted or None))
        assert response.error_code == 0
        return {it.token_id: it for it in response.tokens}


class Rights:
    """An authorizer that allows what a table names."""

    def __init__(self, allowed: Mapping[tuple[str, AclOperation, AclResourceType], str]) -> None:
        self._allowed = allowed

    def allows(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        audited: bool = True,
    ) -> bool:
        return self._allowed.get((str(request.principal), operation, resource_type)) == name

    def allows_any(self, request: Request, operation: AclOperation, resource_type: AclResourceType) -> bool:
        return False


def give_rights(rig: Rig, allowed: Mapping[tuple[str, AclOperation, AclResourceType], str]) -> None:
    """Broker 1 gets an authorizer."""
    execution = rig.broker(1).dispatcher._execution
    object.__setattr__(execution, "authorizer", Rights(allowed))


@pytest.mark.feature("SE-07", "AD-07", "MB-22")
@on_cluster(**KEY)
async def test_a_token_is_created_described_renewed_and_expired(rig: Rig) -> None:
    stage = Stage(rig)
    token = await stage.create(ALICE, renewers=("bob",))
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", "alice")
    for reader in (ALICE, BOB):
        (shown,) = (await stage.described(reader)).values()
        assert (shown.token_id, shown.hmac) == (token.token_id, token.hmac)
        assert [it.principal_name for it in shown.renewers] == ["bob"]
        assert (shown.issue_timestamp, shown.max_timestamp) == (token.issue_timestamp_ms, token.max_timestamp_ms)
    assert list(await stage.described(ALICE, "bob", "carol")) == [token.token_id], "bob may renew it"
    assert await stage.described(ALICE, "carol") == {}

    renewal = await stage.ask(BOB, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1000))
    assert renewal.error_code == 0
    assert token.issue_timestamp_ms < renewal.expiry_timestamp_ms < token.expiry_timestamp_ms
    refused = await stage.ask(CAROL, ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    end = await stage.ask(ALICE, ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
    assert end.error_code == 0
    await rig.until(lambda: not rig.broker(1).metadata.image.others.delegation_tokens)
    assert await stage.described(ALICE) == {}


@pytest.mark.feature("SE-07")
@pytest.mark.parametrize(
    ("principal", "protocol"),
    [
        (ALICE, "PLAINTEXT"),
        (ANONYMOUS, "PLAINTEXT"),
        (ANONYMOUS, "SSL"),
        (Principal("alice", token_authenticated=True), "SASL_SSL"),
    ],
)
@on_cluster(**KEY)
async def test_clients_without_a_proven_name_have_no_tokens(rig: Rig, principal: Principal, protocol: str) -> None:
    stage = Stage(rig)
    request = creating.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    refused = await stage.ask(principal, request, protocol)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    times = (refused.issue_timestamp_ms, refused.expiry_timestamp_ms, refused.max_timestamp_ms)
    assert (times, refused.token_id, refused.hmac) == ((-1, -1, -1), "", b"")
    for other in (RenewDelegationTokenRequest(hmac=b"x"), ExpireDelegationTokenRequest(hmac=b"x")):
        refused = await stage.ask(principal, other, protocol)
        assert (refused.error_code, refused.expiry_timestamp_ms) == (
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            -1,
        )
    refused = await stage.ask(principal, DescribeDelegationTokenRequest(owners=None), protocol)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.feature("SE-07", "SE-02")
@on_cluster(**KEY)
async def test_a_certificate_is_a_proof(rig: Rig) -> None:
    request = creating.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    assert (await Stage(rig).ask(Principal("CN=alice"), request, "SSL")).principal_name == "CN=alice"


@pytest.mark.feature("SE-07")
@on_cluster()
async def test_without_a_key_tokens_are_disabled(rig: Rig) -> None:
    stage = Stage(rig)
    requests: list[Callable[[], Message]] = [
        creating.CreateDelegationTokenRequest,
        lambda: RenewDelegationTokenRequest(hmac=b"x"),
        lambda: ExpireDelegationTokenRequest(hmac=b"x"),
        lambda: DescribeDelegationTokenRequest(owners=None),
    ]
    for make in requests:
        assert (await stage.ask(ALICE, make())).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.feature("SE-07")
@on_cluster(**KEY)
async def test_no_owners_asked_for_no_tokens(rig: Rig) -> None:
    stage = Stage(rig)
    await stage.create(ALICE)
    response = await stage.ask(ALICE, DescribeDelegationTokenRequest(owners=[]))
    assert (response.error_code, response.tokens) == (0, [])


@pytest.mark.feature("SE-07", "SE-08")
@on_cluster(**KEY)
async def test_a_token_for_another_needs_the_right_to_create_tokens(rig: Rig) -> None:
    stage = Stage(rig)
    give_rights(rig, {("User:bob", AclOperation.CREATE_TOKENS, AclResourceType.USER): "User:alice"})
    assert (await stage.create(BOB)).error_code == 0, "one's own needs no right"
    token = await stage.create(BOB, owner="alice")
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", "bob")
    refused = await stage.create(CAROL, owner="alice")
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_id) == ("alice", "")


@pytest.mark.feature("SE-07", "SE-08")
@on_cluster(**KEY)
async def test_tokens_of_others_are_shown_by_right_alone(rig: Rig) -> None:
    stage = Stage(rig)
    of_alice, of_bob = await stage.create(ALICE), await stage.create(BOB)
    give_rights(
        rig,
        {
            ("User:carol", AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN): of_bob.token_id,
            ("User:dave", AclOperation.DESCRIBE_TOKENS, AclResourceType.USER): "User:alice",
        },
    )
    assert list(await stage.described(CAROL)) == [of_bob.token_id]
    assert list(await stage.described(CAROL, "alice")) == []
    assert list(await stage.described(Principal("dave"))) == [of_alice.token_id]
    assert list(await stage.described(Principal("erin"))) == []


@pytest.mark.feature("SE-07", "SE-08", "MB-22")
@on_cluster(**KEY)
async def test_renewers_must_be_users(rig: Rig) -> None:
    request = creating.CreateDelegationTokenRequest(
        renewers=[creating.CreatableRenewers(principal_type="Group", principal_name="g")]
    )
    refused = await Stage(rig).ask(ALICE, request)
    assert (refused.error_code, refused.max_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)


@pytest.mark.feature("SE-07", "AD-02")
@on_cluster(**KEY)
async def test_the_key_is_never_shown(rig: Rig) -> None:
    (key,) = KEY.values()
    for node in (1, 101):
        asked = DescribeConfigsResource(resource_type=4, resource_name=str(node), configuration_keys=None)
        (described,) = (await rig.ask(node, DescribeConfigsRequest(resources=[asked], include_synonyms=True))).results
        (entry,) = [it for it in described.configs if it.name == "delegation.token.secret.key"]
        assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, True)
        assert key not in repr(described)
    broker = rig.broker(1)
    assert key not in repr(broker.settings)
    assert key not in repr(TokenPorts(broker.metadata, lambda _: None, {}, key))


@pytest.mark.feature("SE-07", "RP-02")
@on_cluster(counts_work=True, **KEY)
async def test_thousands_of_tokens_in_short_steps(rig: Rig) -> None:
    stage = Stage(rig)
    last = None
    for _ in range(1500):
        last = await stage.ask(ALICE, creating.CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert last is not None
    await rig.until(lambda: len(rig.broker(1).metadata.image.others.delegation_tokens) == 1500)
    rig.steps.clear()
    assert (await stage.ask(ALICE, RenewDelegationTokenRequest(hmac=last.hmac))).error_code == 0
    assert len(await stage.described(ALICE)) == 1500
    for api in ("RenewDelegationToken", "DescribeDelegationToken"):
        assert max(rig.steps[api]) < MOST_CALLS, api
    assert len(rig.steps["DescribeDelegationToken"]) > 5
