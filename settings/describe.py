"""The effective configs of a topic, a group or a broker with the source of each value; the changes that are allowed.

The layers of a broker, strongest first (KIP-226): set for this broker while it runs, set for all brokers
while they run, its file, Kafka's default. Knows no wire format beyond the numbers that DescribeConfigs gives
sources and types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain

from barnabas.settings.definitions import (
    KeyDefinition,
    Value,
    closest_key,
    definitions,
    find_broker_key,
    is_beyond_kafka,
)
from barnabas.settings.errors import SettingsError
from barnabas.settings.group import GROUP_KEYS, group_value
from barnabas.settings.topic import BROKER_SYNONYMS, broker_default


class ConfigSource(IntEnum):
    """The source of a value, as DescribeConfigs numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


TYPE_NUMBERS = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
"""The types of keys as DescribeConfigs numbers them (v3 and later)."""
UNKNOWN_TYPE = 0

_FINER_UNITS = [[name for name, _factor in synonyms] for synonyms in BROKER_SYNONYMS.values() if len(synonyms) > 1]


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The raw values of a broker by their source."""

    static: Mapping[str, str] = field(default_factory=dict)
    """`NodeSettings.raw`"""
    cluster_default: Mapping[str, str] = field(default_factory=dict)
    per_broker: Mapping[str, str] = field(default_factory=dict)

    def merged(self) -> dict[str, str]:
        """The effective values: the `broker` argument of `TopicConfig.resolve`."""
        return {**self.static, **self.cluster_default, **self.per_broker}

    def by_source(self) -> Iterator[tuple[ConfigSource, Mapping[str, str]]]:
        """Strongest first, without the defaults."""
        yield ConfigSource.DYNAMIC_BROKER, self.per_broker
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER, self.cluster_default
        yield ConfigSource.STATIC_BROKER, self.static


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value under one of the names that can set a key, and its source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One line of DescribeConfigs."""

    name: str
    value: str | None
    """None also where the value is a secret."""
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type_number: int
    synonyms: tuple[ConfigSynonym, ...]
    """Strongest first; the first is in effect."""

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT


def describe_topic_configs(overrides: Mapping[str, str], layers: BrokerLayers) -> list[ConfigEntry]:
    """Every key of a topic by name; internal ones only if they are set."""
    broker = layers.merged()
    entries = []
    for name, definition in definitions("topic").items():
        if definition.internal and name not in overrides:
            continue
        names = [synonym for synonym, _factor in BROKER_SYNONYMS.get(name, ())]
        synonyms = _broker_synonyms(names, layers)
        if name in overrides:
            value: Value = definition.parse(overrides[name])
            synonyms.insert(0, ConfigSynonym(name, to_text(value), ConfigSource.TOPIC))
        else:
            value = broker_default(name, broker)
            value = definition.default_value if value is None else value
        entries.append(_entry(definition, name, to_text(value), synonyms, read_only=False))
    return entries


def describe_group_configs(overrides: Mapping[str, str], layers: BrokerLayers) -> list[ConfigEntry]:
    """Every key of a group by name, as set for the group or for the broker. Keys that Kafka does not have are shown
    only if they are set: its tools look up each key that they get."""
    broker = layers.merged()
    entries = []
    for name, definition in definitions("group").items():
        if name not in overrides and is_beyond_kafka(name):
            continue
        synonym = GROUP_KEYS[name].synonym
        synonyms = [] if synonym is None else _broker_synonyms([synonym], layers)
        if name in overrides:
            value: Value = definition.parse(overrides[name])
            synonyms.insert(0, ConfigSynonym(name, to_text(value), ConfigSource.GROUP))
        else:
            value = group_value(name, {}, broker)
        entries.append(_entry(definition, name, to_text(value), synonyms, read_only=False))
    return entries


def describe_broker_configs(layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """Every key of a running broker by name, and unknown keys that were set: these may be very many."""
    layers = replace(layers, static=_with_both_ids(layers.static))
    known, values = definitions("broker"), layers.merged()
    for name in chain(known, sorted(name for name in values if name not in known)):
        if _is_shown(name, values):
            yield _broker_entry(name, layers, values)


def _with_both_ids(static: Mapping[str, str]) -> Mapping[str, str]:
    """The values with both `node.id` and `broker.id`, which Kafka treats as synonyms."""
    node_id = static.get("node.id", static.get("broker.id"))
    return static if node_id is None else {"node.id": node_id, "broker.id": node_id, **static}


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every key of a subscription to clients' metrics by name, as set or by default."""
    entries = []
    for name, definition in definitions("client-metrics").items():
        value = to_text(definition.parse(overrides[name])) if name in overrides else definition.default
        synonyms = [ConfigSynonym(name, value, ConfigSource.CLIENT_METRICS)] if name in overrides else []
        entries.append(_entry(definition, name, value, synonyms, read_only=False))
    return entries


def describe_cluster_defaults(layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """The keys set for all brokers while they run (the broker resource without a name)."""
    only_defaults = BrokerLayers(cluster_default=layers.cluster_default)
    return (_broker_entry(name, only_defaults, layers.cluster_default) for name in sorted(layers.cluster_default))


def _is_shown(name: str, values: Mapping[str, str]) -> bool:
    definition = _find(name)
    is_hidden = definition is not None and (definition.internal or is_beyond_kafka(name))
    return not is_hidden or name in values


def _broker_entry(name: str, layers: BrokerLayers, values: Mapping[str, str]) -> ConfigEntry:
    """`values`: those of all layers together."""
    definition = _find(name)
    names = next((finer for finer in _FINER_UNITS if name in finer), [name])
    synonyms = _broker_synonyms(names, layers)
    text = values.get(name, definition.default if definition else None)
    if definition is None:
        # The value of an unknown name may be a password of a plug-in.
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        return ConfigEntry(name, None, source, True, True, UNKNOWN_TYPE, tuple(synonyms))
    value = to_text(definition.parse(text)) if text is not None else None
    # As in Kafka, also those of one listener, though brokers take new values of many of them.
    read_only = definition.update == "read-only" or name != definition.name
    return _entry(definition, name, value, synonyms, read_only=read_only)


def _broker_synonyms(names: list[str], layers: BrokerLayers) -> list[ConfigSynonym]:
    found = [
        ConfigSynonym(name, None if _is_secret(name) else values[name], source)
        for source, values in layers.by_source()
        for name in names
        if name in values
    ]
    for name in names:
        definition = find_broker_key(name)
        if definition is not None and definition.default is not None:
            found.append(ConfigSynonym(name, definition.default, ConfigSource.DEFAULT))
    return found


def _entry(
    definition: KeyDefinition, name: str, value: str | None, synonyms: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        name,
        None if definition.sensitive else value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only,
        definition.sensitive,
        TYPE_NUMBERS[definition.type],
        tuple(synonyms),
    )


def _find(name: str) -> KeyDefinition | None:
    return find_broker_key(name) or definitions("dynamic").get(name)


def _is_secret(name: str) -> bool:
    definition = _find(name)
    return definition is None or definition.sensitive


def to_text(value: Value) -> str | None:
    """A typed value in the form of Kafka's tools."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return repr(value).replace("e+", "E") if isinstance(value, float) else str(value)


OF_ONE_LISTENER = frozenset(
    [
        "ssl.key.password",
        *(f"ssl.keystore.{it}" for it in ("certificate.chain", "key", "location", "password", "type")),
        *(f"ssl.truststore.{it}" for it in ("certificates", "location", "password", "type")),
    ]
)
"""Keys and certificates: while a broker runs they change under the prefix of a listener only."""


def validate_broker_config(name: str, value: str, *, for_all: bool) -> None:
    """Raises `SettingsError` unless running brokers take `value` for `name`: one broker, or all with `for_all`. Unknown
    names are accepted, as in Kafka: they may belong to a plug-in.
    """
    definition = _find(name)
    if definition is None:
        return
    if definition.update == "read-only":
        raise SettingsError("cannot be altered: it is read from the broker's file when it starts", name)
    if name in OF_ONE_LISTENER:
        raise SettingsError(f"can be altered for one listener at a time: listener.name.LISTENER.{name}", name)
    if for_all and definition.update == "per-broker":
        raise SettingsError("can be altered for one broker at a time, not for all brokers", name)
    definition.parse(value)


def unknown_broker_config(name: str) -> str | None:
    """A log line about a config that is unknown here; None for a known one."""
    if _find(name) is not None:
        return None
    near = closest_key(name) or closest_key(name, "dynamic")
    return f"{name} is not a broker config and has no effect" + (f"; did you mean {near}?" if near else "")
