"""Configs of single groups: within the broker's bounds, or the broker's own."""

from __future__ import annotations

import pytest

from barnabas.settings.definitions import definitions, is_beyond_kafka
from barnabas.settings.describe import BrokerLayers, ConfigSource, describe_group_configs
from barnabas.settings.errors import SettingsError
from barnabas.settings.group import GROUP_KEYS, group_value, validate_group_configs

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.feature("CG-15")
def test_there_are_twenty_one_keys_and_their_synonyms_exist() -> None:
    assert set(GROUP_KEYS) == set(definitions("group"))
    assert len(GROUP_KEYS) == 21
    for name, fallback in GROUP_KEYS.items():
        for key in fallback:
            assert key is None or key in definitions("broker"), (name, key)
        if fallback.synonym is not None:
            assert definitions("broker")[fallback.synonym].default == definitions("group")[name].default


@pytest.mark.feature("CG-15")
def test_effective_values() -> None:
    assert group_value(SESSION, {}, {}) == 45_000
    assert group_value(SESSION, {}, {"group.consumer.session.timeout.ms": "50000"}) == 50_000
    assert group_value(SESSION, {SESSION: "47000"}, {"group.consumer.session.timeout.ms": "50000"}) == 47_000
    assert group_value(SESSION, {SESSION: "99000"}, {}) == 60_000, "the bounds may have moved since"
    assert group_value(SESSION, {SESSION: "1"}, {"group.consumer.min.session.timeout.ms": "6000"}) == 6_000
    assert group_value("streams.num.standby.replicas", {"streams.num.standby.replicas": "7"}, {}) == 2
    assert group_value("share.renew.acknowledge.enable", {"share.renew.acknowledge.enable": "false"}, {}) is False
    assert group_value("share.auto.offset.reset", {}, {}) == "latest"


GOOD: list[dict[str, str]] = [
    {SESSION: "60000", HEARTBEAT: "15000"},
    {"consumer.assignment.interval.ms": "0"},
    {"share.auto.offset.reset": "by_duration:PT1H30M"},
    {"share.auto.offset.reset": "earliest"},
    {"share.isolation.level": "read_committed"},
    {"streams.initial.rebalance.delay.ms": "0"},
]

BAD: list[tuple[dict[str, str], str]] = [
    ({SESSION: "44999"}, "group.consumer.min.session.timeout.ms"),
    ({SESSION: "60001"}, "group.consumer.max.session.timeout.ms"),
    ({SESSION: "soon"}, "not a whole number"),
    ({SESSION: "0"}, "out of range"),
    ({HEARTBEAT: "4999"}, "group.consumer.min.heartbeat.interval.ms"),
    ({"consumer.assignment.interval.ms": "15001"}, "group.consumer.max.assignment.interval.ms"),
    ({"consumer.assignor.offload.enable": "true"}, "unknown group config"),
    ({"consumer.session.timeout": "45000"}, "did you mean consumer.session.timeout.ms"),
    ({"share.auto.offset.reset": "by_duration:-PT1H"}, "unknown strategy"),
    ({"share.auto.offset.reset": "by_duration:"}, "unknown strategy"),
    ({"share.auto.offset.reset": "sometimes"}, "unknown strategy"),
    ({"share.isolation.level": "serializable"}, "not an allowed value"),
    ({"share.delivery.count.limit": "11"}, "group.share.max.delivery.count.limit"),
    ({"streams.num.standby.replicas": "3"}, "group.streams.max.standby.replicas"),
]


@pytest.mark.feature("CG-15")
@pytest.mark.parametrize("overrides", GOOD)
def test_allowed_overrides(overrides: dict[str, str]) -> None:
    validate_group_configs(overrides, {})


@pytest.mark.feature("CG-15")
@pytest.mark.parametrize(("overrides", "message"), BAD, ids=["=".join(*bad.items()) for bad, _ in BAD])
def test_refused_overrides(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        validate_group_configs(overrides, {})


@pytest.mark.feature("CG-15")
def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    broker = {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000"}
    with pytest.raises(SettingsError, match="must be greater than"):
        validate_group_configs({SESSION: "5000"}, broker)
    validate_group_configs({SESSION: "5000", HEARTBEAT: "1000"}, broker)


@pytest.mark.feature("CG-15")
def test_a_description_has_the_source_of_each_value() -> None:
    layers = BrokerLayers(static={"group.consumer.session.timeout.ms": "50000"})
    backoff = "barnabas.share.redelivery.backoff.ms"
    entries = {entry.name: entry for entry in describe_group_configs({HEARTBEAT: "7000", backoff: "5"}, layers)}
    assert set(entries) == {each for each in GROUP_KEYS if not is_beyond_kafka(each)} | {backoff}
    heartbeat, session = entries[HEARTBEAT], entries[SESSION]
    assert (heartbeat.value, heartbeat.source) == ("7000", ConfigSource.GROUP)
    assert [synonym.name for synonym in heartbeat.synonyms] == [HEARTBEAT, "group.consumer.heartbeat.interval.ms"]
    assert (session.value, session.source) == ("50000", ConfigSource.STATIC_BROKER)
    reset = entries["share.auto.offset.reset"]
    assert (reset.value, reset.source, reset.synonyms) == ("latest", ConfigSource.DEFAULT, ())
