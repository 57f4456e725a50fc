"""The table of Kafka's keys."""

from dataclasses import MISSING, fields

import pytest

from barnabas.settings.broker import BrokerSettings
from barnabas.settings.controller import ControllerSettings
from barnabas.settings.definitions import closest_key, definitions, find_broker_key
from barnabas.settings.errors import SettingsError
from barnabas.settings.node import NodeSettings

# Fields whose text in the table becomes something richer, or depends on other keys.
COMPUTED = {
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "log.dirs",
    "max.connections.per.ip.overrides",
    "early.start.listeners",
}
OWN_FIELDS = (
    "http_listener",
    "http_token_file",
    "memory_limit_bytes",
    "legacy_clients_enable",
    "remote_storage_compacted_enable",
    "advertised_as_seen",
    "quota_scope",
    "host",
    "shared_listeners",
    "remote_store",
)
OF_THE_AUTHORIZER = ("super_users", "allow_everyone_if_no_acl_found")
"""Keys that Kafka's table does not have: it passes them to the authorizer's class."""


def test_every_default_is_one_that_the_key_itself_takes() -> None:
    for scope in ("broker", "topic", "dynamic"):
        for definition in definitions(scope).values():
            assert definition.default_value is None or definition.default is not None


@pytest.mark.parametrize("model", [BrokerSettings, ControllerSettings])
def test_the_models_have_kafkas_defaults(model: type[NodeSettings]) -> None:
    by_attribute = {definition.attribute: definition for definition in definitions("broker").values()}
    compared = 0
    for field in fields(model):
        name = field.name
        if name in ("raw", "not_acted_on", *OWN_FIELDS, *OF_THE_AUTHORIZER):
            continue
        definition = by_attribute[name]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is not MISSING and definition.name not in COMPUTED:
            assert default == definition.default_value, name
            compared += 1
    assert compared > 50


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("broker.session.timeout.ms", "abc", "not a whole number; allowed: 1 or more"),
        ("broker.session.timeout.ms", "0", "out of range; allowed: 1 or more"),
        ("broker.session.timeout.ms", "9999999999", "too large for an int; allowed: 1 or more"),
        ("broker.session.timeout.ms", "1_000", "not a whole number; allowed: 1 or more"),
        ("delete.topic.enable", "yes", "neither true nor false; allowed: true or false"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "out of range; allowed: 0 to 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "not a number; allowed: 0 to 1"),
        ("compression.gzip.level", "0", "out of range; allowed: 1 to 9 or -1"),
        (
            "compression.type",
            "lzma",
            "not an allowed value; allowed: uncompressed, zstd, lz4, snappy, gzip or producer",
        ),
        ("log.cleanup.policy", "delete,keep", "not an allowed value; allowed: a list of compact, delete"),
        (
            "group.consumer.assignors",
            "uniform,com.example.Mine",
            "not an allowed value; allowed: a list of uniform, range, "
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor, "
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        ),
    ],
)
def test_the_error_of_a_bad_value_has_the_allowed_ones(key: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        definitions("broker")[key].parse(text)
    assert str(refused.value) == f"{key}={text}: {message}"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("broker.session.timeout.ms", " 6000 ", 6000),
        ("delete.topic.enable", "FALSE", False),
        ("log.cleaner.io.buffer.load.factor", "9e-1", 0.9),
        ("compression.gzip.level", "-1", -1),
        ("log.dirs", "/a, /b", ["/a", "/b"]),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade"),
        ("log.cleanup.policy", "", []),
    ],
)
def test_a_good_value_is_typed(key: str, text: str, value: object) -> None:
    assert definitions("broker")[key].parse(text) == value


def test_a_password_is_not_shown() -> None:
    definition = definitions("broker")["ssl.key.password"]
    assert definition.sensitive
    assert "secret" not in str(definition.refusal("secret", "wrong"))


def test_a_slip_of_the_pen_finds_the_key_that_was_meant() -> None:
    assert closest_key("brokr.session.timeout.ms") == "broker.session.timeout.ms"
    assert closest_key("broker_rack") == "broker.rack"
    assert closest_key("retention.mss", "topic") == "retention.ms"
    assert closest_key("pineapple") is None


def test_a_key_for_one_listener_is_known_by_its_suffix() -> None:
    found = find_broker_key("listener.name.internal.ssl.client.auth")
    assert found is not None
    assert found.name == "ssl.client.auth"
    assert find_broker_key("listener.name.internal.no.such.key") is None
