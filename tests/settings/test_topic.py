"""A topic's configuration: overrides over the broker's values over Kafka's defaults."""

import pytest

from barnabas.settings.definitions import definitions
from barnabas.settings.errors import SettingsError
from barnabas.settings.topic import TopicConfig, validate_topic_config, validate_topic_configs


def test_without_any_setting_a_topic_has_kafkas_defaults() -> None:
    config = TopicConfig.resolve({})
    for name, definition in definitions("topic").items():
        if name == "internal.segment.bytes":
            continue
        default = definition.default_value
        if isinstance(default, list):
            default = frozenset(default) if name == "cleanup.policy" else tuple(default)
        assert getattr(config, definition.attribute) == default, name


def test_the_topic_wins_over_the_broker_and_the_broker_over_kafka() -> None:
    broker = {"log.segment.bytes": "2097152", "log.retention.ms": "60000"}
    config = TopicConfig.resolve({"segment.bytes": "1048576"}, broker)
    assert (config.segment_bytes, config.retention_ms, config.segment_ms) == (1048576, 60000, 604800000)


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3600000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finer_unit_of_the_broker_counts(broker: dict[str, str], retention_ms: int) -> None:
    assert TopicConfig.resolve({}, broker).retention_ms == retention_ms


def test_cleanup_policy_is_any_of_both_or_neither() -> None:
    both = TopicConfig.resolve({"cleanup.policy": "compact,delete"})
    assert both.compacts and both.deletes
    neither = TopicConfig.resolve({"cleanup.policy": ""})
    assert not neither.compacts and not neither.deletes


def test_tests_and_tools_may_make_segments_smaller_than_users() -> None:
    assert TopicConfig.resolve({"internal.segment.bytes": "1000"}).segment_bytes == 1000
    with pytest.raises(SettingsError, match="allowed: 1048576 or more"):
        validate_topic_config("segment.bytes", "1000")


def test_a_name_from_a_newer_controller_is_passed_over() -> None:
    assert TopicConfig.resolve({"from.the.future": "1"}) == TopicConfig()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.mss": "1"}, "retention.mss: unknown topic config; did you mean retention.ms?"),
        ({"retention.ms": "week"}, "retention.ms=week: not a whole number; allowed: -1 or more"),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"},
            "min.compaction.lag.ms=9: must be at most max.compaction.lag.ms; allowed: 0 to 5",
        ),
        (
            {"remote.storage.enable": "true"},
            "remote.storage.enable=true: tiered storage is off in this cluster "
            "(remote.log.storage.system.enable=false); allowed: false",
        ),
        (
            {"barnabas.delayed.delivery.enable": "true", "errors.deadletterqueue.group.enable": "true"},
            "barnabas.delayed.delivery.enable=true: a dead-letter topic cannot deliver records later; allowed: false",
        ),
        (
            {"barnabas.delayed.delivery.enable": "true", "cleanup.policy": "compact"},
            "barnabas.delayed.delivery.enable=true: a compacted topic cannot deliver records later; allowed: false",
        ),
        (
            {"leader.replication.throttled.replicas": "0:1,1"},
            "leader.replication.throttled.replicas=0:1,1: not an allowed value; "
            "allowed: a list of pairs partition:broker, or *",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        validate_topic_configs(overrides)
    assert str(refused.value) == message


TIERED_CLUSTER = {"remote.log.storage.system.enable": "true"}


@pytest.mark.feature("TS-01")
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"retention.ms": "5", "local.retention.ms": "6"},
            "local.retention.ms=6: must be at most retention.ms; allowed: -2 or 0 to 5",
        ),
        (
            {"retention.bytes": "5", "local.retention.bytes": "-1"},
            "local.retention.bytes=-1: must be at most retention.bytes; allowed: -2 or 0 to 5",
        ),
        (
            {"cleanup.policy": "compact,delete"},
            "remote.storage.enable=true: a compacted topic cannot be tiered; allowed: false",
        ),
        (
            {"remote.log.copy.disable": "true", "retention.ms": "50", "local.retention.ms": "6"},
            "local.retention.ms=6: must be retention.ms, since remote.log.copy.disable=true; allowed: -2 or 50",
        ),
    ],
)
def test_a_tiered_topic_is_refused_what_it_cannot_do(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        validate_topic_configs({"remote.storage.enable": "true", **overrides}, TIERED_CLUSTER)
    assert str(refused.value) == message


@pytest.mark.feature("TS-01")
@pytest.mark.parametrize(
    "overrides",
    [
        {"retention.ms": "-1", "local.retention.ms": "60000"},
        {"retention.ms": "-1", "local.retention.ms": "-1"},
        {"cleanup.policy": "", "local.retention.bytes": "0"},
        {"remote.log.copy.disable": "true", "retention.ms": "50", "local.retention.ms": "50"},
        {"remote.log.copy.disable": "true", "retention.bytes": "50"},
    ],
)
def test_a_tiered_topic_may_have_these(overrides: dict[str, str]) -> None:
    assert validate_topic_configs({"remote.storage.enable": "true", **overrides}, TIERED_CLUSTER).is_tiered


@pytest.mark.feature("TS-01")
def test_tiering_is_switched_off_only_together_with_the_remote_data() -> None:
    before = {"remote.storage.enable": "true"}
    for now in ({}, {"remote.storage.enable": "false"}):
        with pytest.raises(SettingsError, match="remote data would be neither read nor deleted"):
            validate_topic_configs(now, TIERED_CLUSTER, before)
        validate_topic_configs({**now, "remote.log.delete.on.disable": "true"}, TIERED_CLUSTER, before)
        validate_topic_configs(now, TIERED_CLUSTER, {"remote.storage.enable": "false"})



COMPACTED_TIERS = {**TIERED_CLUSTER, "barnabas.remote.storage.compacted.enable": "true"}
COMPACTED = {"cleanup.policy": "compact"}


@pytest.mark.feature("TS-01", "CR-02")
def test_a_compacted_topic_is_tiered_where_the_cluster_allows_it() -> None:
    both = {**COMPACTED, "remote.storage.enable": "true", "local.retention.ms": "99999999999"}
    assert validate_topic_configs(both, COMPACTED_TIERS).is_tiered, "the whole has no limit"
    assert not TopicConfig.resolve(both, TIERED_CLUSTER).is_tiered
    assert validate_topic_configs(both, COMPACTED_TIERS, COMPACTED).is_tiered, "one that exists, too"
    validate_topic_configs({**both, "segment.ms": "5000"}, COMPACTED_TIERS, both)
    validate_topic_configs(both, COMPACTED_TIERS, {"remote.storage.enable": "true"})
    with pytest.raises(SettingsError, match=r"must be at most retention\.ms"):
        validate_topic_configs({**both, "cleanup.policy": "compact,delete"}, COMPACTED_TIERS)


@pytest.mark.feature("TS-01", "CR-02")
def test_a_compacted_topic_that_was_tiered_is_not_tiered_again() -> None:
    off = {**COMPACTED, "remote.log.delete.on.disable": "true"}
    validate_topic_configs({**off, "remote.storage.enable": "false"}, COMPACTED_TIERS, {**COMPACTED, **TIERED})
    with pytest.raises(SettingsError) as refused:
        validate_topic_configs({**off, **TIERED}, COMPACTED_TIERS, off)
    assert str(refused.value) == (
        "remote.storage.enable=true: a compacted topic is not tiered again: remote.log.delete.on.disable=true says that"
        " it was, and its segments in the store may be left; copy it into a new topic; allowed: false"
    )
    with pytest.raises(SettingsError, match=r"remote\.log\.delete\.on\.disable=false: the topic may have been tiered"):
        validate_topic_configs(COMPACTED, COMPACTED_TIERS, off)
    validate_topic_configs(COMPACTED, TIERED_CLUSTER, off)
    assert validate_topic_configs({**off, **TIERED}, COMPACTED_TIERS).is_tiered, "a new topic"
    validate_topic_configs({**COMPACTED, **TIERED}, COMPACTED_TIERS, {**off, **TIERED})


TIERED = {"remote.storage.enable": "true"}
