"""The source of each value, and the keys that may be altered while brokers run."""

from collections.abc import Iterable

import pytest

from barnabas.settings.describe import (
    BrokerLayers,
    ConfigEntry,
    ConfigSource,
    describe_broker_configs,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_topic_configs,
    to_text,
    validate_broker_config,
)
from barnabas.settings.errors import SettingsError


def by_name(entries: Iterable[ConfigEntry]) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in entries}


@pytest.mark.feature("MB-20")
def test_each_layer_hides_the_one_below_it() -> None:
    key = "log.retention.ms"
    static, default, own = {key: "1000"}, {key: "2000"}, {key: "3000"}
    for layers, source, value in (
        (BrokerLayers(), ConfigSource.DEFAULT, "604800000"),
        (BrokerLayers(static), ConfigSource.STATIC_BROKER, "1000"),
        (BrokerLayers(static, default), ConfigSource.DYNAMIC_DEFAULT_BROKER, "2000"),
        (BrokerLayers(static, default, own), ConfigSource.DYNAMIC_BROKER, "3000"),
    ):
        entry = by_name(describe_topic_configs({}, layers))["retention.ms"]
        assert (entry.source, entry.value) == (source, value)
    entry = by_name(describe_topic_configs({"retention.ms": "4000"}, layers))["retention.ms"]
    assert (entry.source, entry.value) == (ConfigSource.TOPIC, "4000")
    assert [synonym.value for synonym in entry.synonyms[:4]] == ["4000", "3000", "2000", "1000"]


@pytest.mark.feature("AD-02")
def test_a_topic_shows_its_keys_with_types_and_internal_ones_only_when_set() -> None:
    entries = by_name(describe_topic_configs({}, BrokerLayers()))
    assert len(entries) == 33
    assert "internal.segment.bytes" not in entries
    assert entries["segment.bytes"].type_number == 3
    assert entries["preallocate"].value == "false"
    assert entries["cleanup.policy"].value == "delete"
    assert not entries["segment.bytes"].read_only
    shown = by_name(describe_topic_configs({"internal.segment.bytes": "9"}, BrokerLayers()))
    assert shown["internal.segment.bytes"].value == "9"


@pytest.mark.feature("AD-02", "RP-02")
def test_the_layers_are_merged_once_however_many_values_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    merged, merge = [], BrokerLayers.merged

    def counted(layers: BrokerLayers) -> dict[str, str]:
        merged.append(layers)
        return merge(layers)

    monkeypatch.setattr(BrokerLayers, "merged", counted)
    layers = BrokerLayers({}, {}, {f"mine.{number}": "1" for number in range(100)})
    assert len(by_name(describe_broker_configs(layers))) > 100
    assert len(merged) == 1


@pytest.mark.feature("AD-02")
def test_a_broker_shows_every_key_and_hides_secrets() -> None:
    layers = BrokerLayers({"node.id": "1", "ssl.key.password": "hush", "my.plugin.token": "hush too"})
    entries = by_name(describe_broker_configs(layers))
    assert entries["node.id"].read_only and entries["node.id"].source == ConfigSource.STATIC_BROKER
    assert not entries["log.retention.ms"].read_only
    assert entries["num.partitions"].is_default
    for name in ("ssl.key.password", "my.plugin.token"):
        assert entries[name].sensitive and entries[name].value is None
    assert "hush" not in repr(entries)


@pytest.mark.feature("AD-02")
@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_a_broker_shows_its_id_under_both_names(key: str) -> None:
    entries = by_name(describe_broker_configs(BrokerLayers({key: "7"})))
    for name in ("node.id", "broker.id"):
        assert (entries[name].value, entries[name].source) == ("7", ConfigSource.STATIC_BROKER), name


@pytest.mark.feature("AD-02")
def test_keys_that_only_a_running_broker_takes_are_shown_when_they_are_set() -> None:
    rates = ["leader.replication.throttled.rate", "follower.replication.throttled.rate"]
    rates.append("replica.alter.log.dirs.io.max.bytes.per.second")
    unset = by_name(describe_broker_configs(BrokerLayers({"node.id": "1"})))
    assert not set(rates) & set(unset)
    shown = by_name(describe_broker_configs(BrokerLayers(cluster_default={rates[1]: "5"}, per_broker={rates[0]: "7"})))
    assert set(rates) & set(shown) == set(rates[:2])
    assert (shown[rates[0]].value, shown[rates[0]].type_number, shown[rates[0]].read_only) == ("7", 5, False)
    assert [(it.value, it.source) for it in shown[rates[0]].synonyms] == [("7", ConfigSource.DYNAMIC_BROKER)]


@pytest.mark.feature("AD-02")
def test_an_unknown_key_is_shown_without_its_value() -> None:
    layers = BrokerLayers(per_broker={"log.cleaner.threadzz": "9"})
    entry = by_name(describe_broker_configs(layers))["log.cleaner.threadzz"]
    assert (entry.value, entry.type_number, entry.sensitive, entry.read_only) == (None, 0, True, True)
    assert [(it.value, it.source) for it in entry.synonyms] == [(None, ConfigSource.DYNAMIC_BROKER)]


@pytest.mark.feature("AD-02")
def test_a_subscription_to_client_metrics_shows_every_key() -> None:
    entries = by_name(describe_client_metrics({"metrics": " a. , b."}))
    assert {name: (it.value, it.source, it.type_number) for name, it in entries.items()} == {
        "interval.ms": ("300000", ConfigSource.DEFAULT, 3),
        "match": ("", ConfigSource.DEFAULT, 7),
        "metrics": ("a.,b.", ConfigSource.CLIENT_METRICS, 7),
    }
    assert [(it.name, it.value, it.source) for it in entries["metrics"].synonyms] == [
        ("metrics", "a.,b.", ConfigSource.CLIENT_METRICS)
    ]
    assert entries["match"].synonyms == ()


def test_the_cluster_defaults_show_only_values_set_for_all_brokers() -> None:
    layers = BrokerLayers({"num.partitions": "3"}, {"max.connections": "9"}, {"log.roll.ms": "5"})
    [entry] = describe_cluster_defaults(layers)
    assert (entry.name, entry.value, entry.source) == (
        "max.connections",
        "9",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (["a", "b"], "a,b"),
    ],
)
def test_values_print_as_in_kafkas_tools(value: bool | int | float | list[str], text: str) -> None:
    assert to_text(value) == text


@pytest.mark.feature("AD-02")
@pytest.mark.parametrize(
    ("name", "value", "for_all", "message"),
    [
        ("log.retention.ms", "5", True, None),
        ("leader.replication.throttled.rate", "1000", False, None),
        ("listeners", "PLAINTEXT://:1", False, None),
        ("listeners", "PLAINTEXT://:1", True, "one broker at a time"),
        ("node.id", "5", False, "when it starts"),
        ("log.retention.ms", "x", True, "log.retention.ms=x: not a whole number"),
        ("log.retention.mss", "5", True, None),
        ("ssl.truststore.type", "PKCS12", False, "listener.name.LISTENER.ssl.truststore.type"),
        ("listener.name.internal.ssl.truststore.type", "PKCS12", False, None),
        ("listener.name.internal.ssl.truststore.type", "PKCS12", True, "one broker at a time"),
    ],
)
def test_which_changes_running_brokers_take(name: str, value: str, for_all: bool, message: str | None) -> None:
    if message is None:
        validate_broker_config(name, value, for_all=for_all)
        return
    with pytest.raises(SettingsError) as refused:
        validate_broker_config(name, value, for_all=for_all)
    assert message in str(refused.value)
