"""Users and quotas through brokers: changed by the controller, described by every broker from its image."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_client_quotas as altering
from barnabas.protocol.messages import alter_user_scram_credentials as scram
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from simulation.invariants.work import MOST_CALLS
from tests.broker.apis.rig import Rig, on_cluster
from tests.broker.apis.test_cost import asked_in_steps, largest_step

EXACT, DEFAULT, ANY = range(3)
SHA_256, SHA_512 = 1, 2

Entity = tuple[tuple[str, str | None], ...]


def upserts(*users: tuple[str, int]) -> scram.AlterUserScramCredentialsRequest:
    return scram.AlterUserScramCredentialsRequest(
        upsertions=[
            scram.ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=4096 + mechanism, salt=b"salt", salted_password=b"s" * 32
            )
            for name, mechanism in users
        ]
    )


def users_request(*names: str) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])


def described_users(response: Any) -> dict[str, tuple[int, str | None, list[tuple[int, int]]]]:
    assert (response.error_code, response.error_message) == (0, None)
    return {
        it.user: (
            it.error_code,
            it.error_message,
            [(each.mechanism, each.iterations) for each in it.credential_infos],
        )
        for it in response.results
    }


def quota_changes(*changes: tuple[Entity, str, float], remove: bool = False) -> altering.AlterClientQuotasRequest:
    return altering.AlterClientQuotasRequest(
        entries=[
            altering.RequestEntryData(
                entity=[altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[altering.OpData(key=key, value=value, remove=remove)],
            )
            for entity, key, value in changes
        ]
    )


def found(response: DescribeClientQuotasResponse) -> dict[Entity, dict[str, float]]:
    assert (response.error_code, response.error_message) == (0, None)
    return {
        tuple((it.entity_type, it.entity_name) for it in entry.entity): {it.key: it.value for it in entry.values}
        for entry in response.entries or ()
    }


@pytest.mark.feature("AD-07", "MB-22")
@on_cluster(brokers=3)
async def test_users_are_described_by_every_broker_and_survive_it(rig: Rig) -> None:
    assert [it.error_code for it in (await rig.ask(1, upserts(("alice", SHA_256), ("bob", SHA_512)))).results] == [0, 0]
    await rig.ask(2, upserts(("alice", SHA_512)))
    for broker in (1, 2, 3):
        await rig.until(lambda broker=broker: len(rig.broker(broker).metadata.image.others.scram) == 3)
        everybody = {
            "alice": (0, None, [(SHA_256, 4097), (SHA_512, 4098)]),
            "bob": (0, None, [(SHA_512, 4098)]),
        }
        assert described_users(await rig.ask(broker, DescribeUserScramCredentialsRequest(users=None))) == everybody
        assert described_users(await rig.ask(broker, users_request())) == everybody
    await rig.cluster.stop("broker-1")
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    rig._channels.clear()
    answer = described_users(await rig.ask(1, users_request("bob", "carol", "alice", "alice")))
    assert answer == {
        "bob": (0, None, [(SHA_512, 4098)]),
        "carol": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: carol",
            [],
        ),
        "alice": (
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
            [],
        ),
    }


@pytest.mark.feature("AD-07", "QU-04", "SE-07", "MB-06")
@on_cluster(
    metadata__log__max__record__bytes__between__snapshots="2000", delegation__token__secret__key="the cluster's"
)
async def test_a_new_broker_process_and_a_new_controller_process_read_them_from_a_snapshot(rig: Rig) -> None:
    for number in range(40):
        await rig.ask(1, upserts((f"user-{number}", SHA_256)))
        await rig.ask(1, quota_changes(((("user", f"user-{number}"),), RATE, float(number + 1))))
    await rig.ask(1, quota_changes(((("user", "user-0"),), RATE, 0.0), remove=True))
    disk = rig.universe.disk("controller-101")
    snapshots = [path for path, _ in disk.files() if "__cluster_metadata-0" in path and path.endswith(".checkpoint")]
    assert snapshots, "a snapshot was written"
    for name in ("controller-101", "broker-1"):
        rig.cluster.kill(name)
        await rig.cluster.nodes[name].ended.wait()
        rig.cluster.start(name)
        await rig.cluster.wait_ready()
    rig._channels.clear()
    image = rig.broker(1).metadata.image
    assert len(image.others.scram) == 40
    assert image.others.quotas == {(("user", f"user-{it}"),): {RATE: float(it + 1)} for it in range(1, 40)}
    twice = await rig.ask(1, quota_changes(((("user", "user-1"),), RATE, 2.0)))
    assert [it.error_code for it in twice.entries] == [0]


ALICE, APP = ("user", "alice"), ("client-id", "app")
EVERY_USER, EVERY_CLIENT = ("user", None), ("client-id", None)
RATE = "producer_byte_rate"
QUOTAS: dict[Entity, dict[str, float]] = {
    (ALICE,): {RATE: 1.0},
    (EVERY_USER,): {RATE: 2.0},
    (APP,): {RATE: 3.0},
    (APP, ALICE): {RATE: 4.0},
    (EVERY_CLIENT, ALICE): {RATE: 5.0},
    (EVERY_CLIENT, EVERY_USER): {RATE: 6.0},
    (("ip", "10.0.0.1"),): {"connection_creation_rate": 7.0},
    (("ip", None),): {"connection_creation_rate": 8.0},
}


async def with_quotas(rig: Rig) -> None:
    changes = [(entity, key, value) for entity, values in QUOTAS.items() for key, value in values.items()]
    response = await rig.ask(1, quota_changes(*changes))
    assert [(it.error_code, it.error_message) for it in response.entries] == [(0, None)] * len(changes)
    await rig.until(lambda: len(rig.broker(1).metadata.image.others.quotas) == len(QUOTAS))


def matching(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )


@pytest.mark.feature("QU-03", "QU-04", "QU-08", "MB-22")
@on_cluster()
async def test_filters_find_entities_by_name_by_default_and_by_type(rig: Rig) -> None:
    await with_quotas(rig)
    expected: list[tuple[DescribeClientQuotasRequest, list[Entity]]] = [
        (matching(), list(QUOTAS)),
        (matching(strict=True), []),
        (matching(("user", EXACT, "alice")), [(ALICE,), (APP, ALICE), (EVERY_CLIENT, ALICE)]),
        (matching(("user", EXACT, "alice"), strict=True), [(ALICE,)]),
        (matching(("user", DEFAULT, None)), [(EVERY_USER,), (EVERY_CLIENT, EVERY_USER)]),
        (matching(("user", ANY, None), strict=True), [(ALICE,), (EVERY_USER,)]),
        (
            matching(("user", ANY, None), ("client-id", ANY, None)),
            [(APP, ALICE), (EVERY_CLIENT, ALICE), (EVERY_CLIENT, EVERY_USER)],
        ),
        (matching(("client-id", EXACT, "app")), [(APP,), (APP, ALICE)]),
        (matching(("client-id", DEFAULT, None), ("user", EXACT, "alice")), [(EVERY_CLIENT, ALICE)]),
        (matching(("ip", ANY, None)), [(("ip", "10.0.0.1"),), (("ip", None),)]),
        (matching(("ip", EXACT, "10.0.0.2")), []),
    ]
    for request, entities in expected:
        answer = found(await rig.ask(1, request))
        assert answer == {entity: QUOTAS[entity] for entity in entities}, request


@pytest.mark.feature("QU-04")
@on_cluster()
async def test_wrong_filters_are_refused_with_the_reason(rig: Rig) -> None:
    for request, code, message in (
        (matching(("", ANY, None)), ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        (
            matching(("user", ANY, None), ("user", EXACT, "a")),
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (matching(("group", ANY, None)), ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        (
            matching(("user", EXACT, None)),
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            matching(("user", DEFAULT, "a")),
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            matching(("user", ANY, "")),
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        (matching(("user", 7, None)), ErrorCode.INVALID_REQUEST, "Unknown match type 7"),
        (
            matching(("ip", ANY, None), ("user", ANY, None)),
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        ),
    ):
        response = await rig.ask(1, request)
        assert (response.error_code, response.error_message, response.entries) == (code, message, None)


@pytest.mark.feature("QU-04", "AD-07", "RP-02")
@on_cluster(counts_work=True)
async def test_thousands_of_users_and_quotas_in_short_steps(rig: Rig) -> None:
    many = [(f"user-{number}", SHA_256) for number in range(6000)]
    rig.steps.clear()
    assert {it.error_code for it in (await rig.ask(1, upserts(*many))).results} == {0}
    assert largest_step(rig, "AlterUserScramCredentials") < MOST_CALLS
    changes = [((("user", name),), RATE, 1.0) for name, _ in many]
    assert {it.error_code for it in (await rig.ask(1, quota_changes(*changes))).entries} == {0}
    assert largest_step(rig, "AlterClientQuotas") < MOST_CALLS
    await rig.until(lambda: len(rig.broker(1).metadata.image.others.quotas) == len(many))

    everybody = await asked_in_steps(
        rig, "DescribeUserScramCredentials", DescribeUserScramCredentialsRequest(users=None), 0
    )
    assert len(everybody.results) == len(many)
    named = await asked_in_steps(
        rig, "DescribeUserScramCredentials", users_request(*(name for name, _ in many)), 0
    )
    assert {it.error_code for it in named.results} == {0}
    quotas = await asked_in_steps(rig, "DescribeClientQuotas", matching(), 1)
    assert len(quotas.entries) == len(many)
    one = await asked_in_steps(rig, "DescribeClientQuotas", matching(("user", EXACT, "user-17")), 1)
    assert found(one) == {(("user", "user-17"),): {RATE: 1.0}}
