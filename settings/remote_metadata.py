"""Settings of `__remote_log_metadata`: in Kafka keys of a plug-in, with its prefix, and not in `keys.tsv`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.settings.definitions import KeyDefinition, KeyType
from barnabas.settings.errors import SettingsError

REMOTE_METADATA_TOPIC = "__remote_log_metadata"

PREFIX_KEY = "remote.log.metadata.manager.impl.prefix"
DEFAULT_PREFIX = "rlmm.config."


def _key(name: str, kind: KeyType, default: str, allowed: str) -> KeyDefinition:
    return KeyDefinition("broker", name, kind, default, False, allowed, "read-only", False)


_PARTITIONS = _key("remote.log.metadata.topic.num.partitions", "int", "50", "1..")
_REPLICATION_FACTOR = _key("remote.log.metadata.topic.replication.factor", "short", "3", "1..")
_RETENTION_MS = _key("remote.log.metadata.topic.retention.ms", "long", "-1", "1..|-1")
_MIN_ISR = _key("remote.log.metadata.topic.min.isr", "short", "2", "1..")
_CONSUME_WAIT_MS = _key("remote.log.metadata.consume.wait.ms", "long", "120000", "0..")


@dataclass(frozen=True, slots=True)
class RemoteMetadataSettings:
    """The defaults are those of Kafka 4.3."""

    num_partitions: int
    replication_factor: int
    retention_ms: int
    """-1 keeps all. Records are needed for as long as the segments that they describe."""
    min_insync_replicas: int
    consume_wait_ms: int
    """The most that it takes to publish a record and to read it back."""

    @classmethod
    def of(cls, raw: Mapping[str, str]) -> RemoteMetadataSettings:
        """From the raw settings of a broker. Raises SettingsError."""
        return cls(*(_value(raw, each) for each in _ALL))


_ALL = (_PARTITIONS, _REPLICATION_FACTOR, _RETENTION_MS, _MIN_ISR, _CONSUME_WAIT_MS)
"""In the order of the fields."""


def _value(raw: Mapping[str, str], definition: KeyDefinition) -> int:
    key = raw.get(PREFIX_KEY, DEFAULT_PREFIX) + definition.name
    text = raw.get(key, definition.default)
    assert text is not None
    try:
        value = definition.parse(text)
    except SettingsError as error:
        error.key = key
        raise
    assert isinstance(value, int)
    return value
