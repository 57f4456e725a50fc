"""Quotas of users, client ids and addresses are set and removed (KIP-546, KIP-612)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnabas.kraft.metadata.image import QuotaEntity
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from barnabas.protocol.messages.metadata_log import ClientQuotaRecord
from barnabas.runtime.identity import Principal

ALICE: QuotaEntity = (("user", "alice"),)
APP_OF_ALICE: QuotaEntity = (("client-id", "app"), ("user", "alice"))
EVERY_CLIENT: QuotaEntity = (("client-id", None),)
HOST: QuotaEntity = (("ip", "10.0.0.1"),)

Ops = dict[str, float | None]


def entry(entity: QuotaEntity, ops: Ops) -> RequestEntryData:
    return RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def send(cluster: Any, *entries: RequestEntryData, validate_only: bool = False) -> dict[QuotaEntity, tuple[int, str]]:
    """(error code, message) by entity."""
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answered = cluster.send(request, by=Principal("admin")).entries
    found = {
        tuple((it.entity_type, it.entity_name) for it in each.entity): (each.error_code, each.error_message)
        for each in answered
    }
    assert len(found) == len(answered), "one answer for each entity"
    return found


def alter(cluster: Any, entity: QuotaEntity, **ops: float | None) -> tuple[int, str]:
    (answer,) = send(cluster, entry(entity, ops)).values()
    return answer


@pytest.mark.feature("QU-03", "QU-04", "MB-20")
def test_quotas_are_set_changed_and_removed_by_key(cluster: Any) -> None:
    assert alter(cluster, ALICE, producer_byte_rate=1024, consumer_byte_rate=2048) == (0, None)
    assert alter(cluster, APP_OF_ALICE, request_percentage=12.5) == (0, None)
    assert alter(cluster, EVERY_CLIENT, controller_mutation_rate=0.5) == (0, None)
    assert alter(cluster, HOST, connection_creation_rate=10) == (0, None)
    assert cluster.image.others.quotas == {
        ALICE: {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0},
        APP_OF_ALICE: {"request_percentage": 12.5},
        EVERY_CLIENT: {"controller_mutation_rate": 0.5},
        HOST: {"connection_creation_rate": 10.0},
    }
    assert alter(cluster, ALICE, producer_byte_rate=None, consumer_byte_rate=4096) == (0, None)
    assert cluster.image.others.quotas[ALICE] == {"consumer_byte_rate": 4096.0}
    assert alter(cluster, ALICE, consumer_byte_rate=None) == (0, None)
    assert ALICE not in cluster.image.others.quotas
    assert cluster.story("user alice")[-1] == (
        "quotas of user alice are changed: User:admin asked for consumer_byte_rate=none"
    )


@pytest.mark.feature("QU-04")
def test_a_quota_that_is_set_already_is_not_written_again(cluster: Any) -> None:
    alter(cluster, ALICE, producer_byte_rate=1024)
    end = len(cluster.log)
    assert alter(cluster, ALICE, producer_byte_rate=1024, consumer_byte_rate=None) == (0, None)
    assert alter(cluster, HOST, connection_creation_rate=None, no_such_key=None) == (0, None)
    assert len(cluster.log) == end


def test_the_order_of_an_entity_does_not_matter(cluster: Any) -> None:
    alter(cluster, APP_OF_ALICE, producer_byte_rate=5)
    alter(cluster, APP_OF_ALICE[::-1], producer_byte_rate=6)
    assert cluster.image.others.quotas == {APP_OF_ALICE: {"producer_byte_rate": 6.0}}


@pytest.mark.feature("QU-04")
def test_a_dry_run_checks_and_writes_nothing(cluster: Any) -> None:
    end = len(cluster.log)
    answers = send(
        cluster,
        entry(ALICE, {"producer_byte_rate": 1.0}),
        entry(HOST, {"producer_byte_rate": 1.0}),
        validate_only=True,
    )
    assert answers == {
        ALICE: (0, None),
        HOST: (ErrorCode.INVALID_REQUEST, "Invalid configuration key producer_byte_rate"),
    }
    assert len(cluster.log) == end


@pytest.mark.feature("QU-03")
@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ((), "Invalid empty client quota entity"),
        ((("group", "g"),), "Unhandled client quota entity type: group"),
        ((("user", ""),), "Empty user not supported"),
        ((("client-id", ""), ("user", "u")), "Empty client-id not supported"),
        (
            (("ip", "10.0.0.1"), ("user", "u")),
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        (
            (("client-id", "c"), ("ip", None)),
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        ((("ip", "10.0.0.256"),), "10.0.0.256 is not a valid IP address"),
        ((("ip", "localhost"),), "localhost is not a valid IP address"),
    ],
)
def test_only_these_entities_have_quotas(cluster: Any, entity: QuotaEntity, message: str) -> None:
    assert alter(cluster, entity, producer_byte_rate=1.0) == (ErrorCode.INVALID_REQUEST, message)
    assert cluster.image.others.quotas == {}


@pytest.mark.feature("QU-03", "QU-08")
@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        (ALICE, "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, "producer_byte_rate", -1.0, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, "request_percentage", math.nan, "Quota request_percentage must be greater than 0"),
        (ALICE, "consumer_byte_rate", -math.inf, "Quota consumer_byte_rate must be greater than 0"),
        (
            ALICE,
            "consumer_byte_rate",
            math.inf,
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (ALICE, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        (ALICE, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (ALICE, "no_such_key", 1.0, "Invalid configuration key no_such_key"),
        (HOST, "consumer_byte_rate", 1.0, "Invalid configuration key consumer_byte_rate"),
        (HOST, "connection_creation_rate", 0.5, "connection_creation_rate cannot be a fractional value."),
        (
            HOST,
            "connection_creation_rate",
            2.0**31,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_a_wrong_value_refuses_all_of_an_entity(
    cluster: Any, entity: QuotaEntity, key: str, value: float, message: str
) -> None:
    good = "connection_creation_rate" if entity == HOST else "producer_byte_rate"
    ops: Ops = {good: 7.0} | {key: value}
    answers = send(cluster, entry(entity, ops), entry(EVERY_CLIENT, {"producer_byte_rate": 3.0}))
    assert answers == {entity: (ErrorCode.INVALID_REQUEST, message), EVERY_CLIENT: (0, None)}
    assert cluster.image.others.quotas == {EVERY_CLIENT: {"producer_byte_rate": 3.0}}


@pytest.mark.feature("QU-03")
@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (ALICE, "request_percentage", 1e-9),
        (ALICE, "controller_mutation_rate", 0.25),
        (ALICE, "producer_byte_rate", 2.0**63),
        (ALICE, "producer_byte_rate", 1 + 1e-7),
        ((("ip", None),), "connection_creation_rate", 2.0**31 - 1),
        ((("ip", "::1"),), "connection_creation_rate", 1.0),
        ((("client-id", None), ("user", None)), "consumer_byte_rate", 1.0),
    ],
)
def test_values_at_the_bounds_are_accepted(cluster: Any, entity: QuotaEntity, key: str, value: float) -> None:
    assert alter(cluster, entity, **{key: value}) == (0, None)
    assert cluster.image.others.quotas == {entity: {key: value}}


@pytest.mark.feature("QU-04")
def test_an_entity_or_a_key_that_is_named_twice_keeps_its_quotas(cluster: Any) -> None:
    alter(cluster, ALICE, producer_byte_rate=1)
    twice = (entry(ALICE, {"producer_byte_rate": 2.0}), entry(ALICE, {"consumer_byte_rate": 3.0}))
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert send(cluster, *twice) == {ALICE: (ErrorCode.INVALID_REQUEST, message)}
    same_key = entry(EVERY_CLIENT, {"producer_byte_rate": 2.0})
    same_key.ops *= 2
    ((code, said),) = send(cluster, same_key).values()
    assert code == ErrorCode.INVALID_REQUEST
    assert said.startswith("Duplicate quota key producer_byte_rate not updating quota")
    assert cluster.image.others.quotas == {ALICE: {"producer_byte_rate": 1.0}}


def test_records_name_the_entity_and_one_key(cluster: Any) -> None:
    alter(cluster, APP_OF_ALICE, producer_byte_rate=5)
    alter(cluster, APP_OF_ALICE, producer_byte_rate=None)
    was_set, removed = [it for it in cluster.log if isinstance(it, ClientQuotaRecord)]
    assert [(it.entity_type, it.entity_name) for it in was_set.entity] == [("client-id", "app"), ("user", "alice")]
    assert (was_set.key, was_set.value, was_set.remove) == ("producer_byte_rate", 5.0, False)
    assert (removed.key, removed.value, removed.remove) == ("producer_byte_rate", 0.0, True)


def test_a_request_changes_at_most_ten_thousand_quotas(cluster: Any) -> None:
    end = len(cluster.log)
    many = [entry((("user", f"u{number}"),), {"producer_byte_rate": 1.0}) for number in range(10_001)]
    answers = send(cluster, *many)
    assert set(answers.values()) == {(ErrorCode.POLICY_VIOLATION, "the request names more than 10000 quotas")}
    assert len(answers) == 10_001, "a refusal names the entities"
    assert len(cluster.log) == end
