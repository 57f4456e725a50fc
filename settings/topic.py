"""The config of one topic: its own overrides over the broker's values over Kafka's defaults.

The log, the replicas and the cleaner read `TopicConfig`. This module knows no file, no pydantic, and of a broker only a
map of raw strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from barnabas.settings.definitions import KeyDefinition, closest_key, definitions
from barnabas.settings.errors import SettingsError

_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS
_AS_WHOLE = -2
"""Local retention that is the same as that of the whole log."""
_NO_LIMIT = -1
SYSTEM_ENABLE = "remote.log.storage.system.enable"
"""Broker key: the cluster has tiered storage."""
COMPACTED_TIERS = "barnabas.remote.storage.compacted.enable"
"""A key that Kafka does not have: compacted topics may be tiered. The same on all nodes."""

BROKER_SYNONYMS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}
"""Topic key to the broker keys that give its default, each with the factor to its unit. The first that is set wins."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective values of a topic; defaults are those of Kafka 4.3. -1 means no limit in the retention fields."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * _HOUR_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * _HOUR_MS
    retention_bytes: int = -1
    max_message_bytes: int = 1048588
    flush_messages: int = (1 << 63) - 1
    flush_ms: int = (1 << 63) - 1
    cleanup_policy: frozenset[str] = frozenset(["delete"])
    """Any of `delete` and `compact`; none keeps everything. Use `deletes` and `compacts`."""
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = (1 << 63) - 1
    message_timestamp_after_max_ms: int = _HOUR_MS
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    file_delete_delay_ms: int = _MINUTE_MS
    delete_retention_ms: int = 24 * _HOUR_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5
    preallocate: bool = False
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    local_retention_ms: int = -2
    """-2: as `retention_ms`."""
    local_retention_bytes: int = -2
    remote_log_storage_system_enable: bool = False
    """The broker's setting; without it no topic is tiered."""
    barnabas_remote_storage_compacted_enable: bool = False
    """The broker's setting; without it no compacted topic is tiered."""
    errors_deadletterqueue_group_enable: bool = False
    barnabas_delayed_delivery_enable: bool = False
    """Records with a header deliver-at or deliver-after are delivered at that time. Kafka has no such key."""
    barnabas_delayed_delivery_max_ms: int = 365 * 24 * _HOUR_MS
    barnabas_delayed_delivery_max_pending_records: int = 2_000_000
    barnabas_validate_records: str = "all"
    """`all` checks every record that is produced; `head` checks only the heads of batches. Kafka has no such key."""

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_tiered(self) -> bool:
        """Closed segments are in a remote store, too (KIP-405)."""
        may_be = not self.compacts or self.barnabas_remote_storage_compacted_enable
        return self.remote_storage_enable and self.remote_log_storage_system_enable and may_be

    @property
    def copies_to_remote(self) -> bool:
        """The leader goes on copying; without this a tiered topic is only read."""
        return self.is_tiered and not self.remote_log_copy_disable

    @property
    def longest_segment_ms(self) -> int:
        """Time after which a segment is closed: records can be compacted within `max.compaction.lag.ms` only in closed
        ones."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: Mapping[str, str] | None = None) -> TopicConfig:
        """Overrides win over the broker's raw values, those over Kafka's defaults.

        `broker` has the values of the broker's file and its dynamic configs, under broker keys (`log.segment.bytes`).
        Unknown names are ignored: a newer controller may have accepted them. Raises `SettingsError` for a value that
        cannot be parsed.
        """
        values: dict[str, Any] = {}
        for name, text in overrides.items():
            definition = definitions("topic").get(name)
            if definition is not None:
                values[definition.attribute] = _field_value(name, definition.parse(text))
        for name, definition in _keys_with_synonyms() if broker else ():
            if definition.attribute not in values:
                found = broker_default(name, broker or {})
                if found is not None:
                    values[definition.attribute] = _field_value(name, found)
        values["remote_log_storage_system_enable"] = is_true((broker or {}).get(SYSTEM_ENABLE))
        values["barnabas_remote_storage_compacted_enable"] = is_true((broker or {}).get(COMPACTED_TIERS))
        internal_segment_bytes = values.pop("internal_segment_bytes", None)
        if internal_segment_bytes is not None:
            values["segment_bytes"] = internal_segment_bytes
        return cls(**values)


@cache
def _keys_with_synonyms() -> tuple[tuple[str, KeyDefinition], ...]:
    return tuple((name, definitions("topic")[name]) for name in BROKER_SYNONYMS)


def _field_value(name: str, value: Any) -> Any:
    """Lists become hashable; the cleanup policy has no order."""
    if isinstance(value, list):
        return frozenset(value) if name == "cleanup.policy" else tuple(value)
    return value


def broker_default(topic_key: str, broker: Mapping[str, str]) -> bool | int | float | str | list[str] | None:
    """The default of a topic key from the broker's raw values, in the unit of the topic key; None if there is none."""
    for name, factor in BROKER_SYNONYMS.get(topic_key, ()):
        text = broker.get(name)
        if text is not None:
            value = definitions("broker")[name].parse(text)
            # -1 hours of retention mean no limit, as -1 ms do.
            return value * factor if factor != 1 and isinstance(value, int) and value > 0 else value
    return None


def validate_topic_config(name: str, value: str) -> None:
    """Raises `SettingsError` unless `name` is a topic key and takes `value`."""
    definition = definitions("topic").get(name)
    if definition is None:
        near = closest_key(name, "topic")
        raise SettingsError("unknown topic config" + (f"; did you mean {near}?" if near else ""), name)
    definition.parse(value)


def validate_topic_configs(
    overrides: Mapping[str, str],
    broker: Mapping[str, str] | None = None,
    before: Mapping[str, str] | None = None,
) -> TopicConfig:
    """Check each override, and all values together; returns the resulting config. Raises `SettingsError`.

    `before`: the overrides that the topic has now, if it exists.
    """
    for name, value in overrides.items():
        validate_topic_config(name, value)
    config = TopicConfig.resolve(overrides, broker)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise SettingsError(
            "must be at most max.compaction.lag.ms",
            "min.compaction.lag.ms",
            str(config.min_compaction_lag_ms),
            f"0 to {config.max_compaction_lag_ms}",
        )
    known = None if before is None else TopicConfig.resolve(before, broker)
    if config.remote_storage_enable:
        _check_tiering(config, known)
    elif known is not None and not config.remote_log_delete_on_disable:
        _check_that_remote_data_goes(config, known)
    if config.barnabas_delayed_delivery_enable:
        _check_delayed_delivery(config)
    return config


def is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"


def _check_that_remote_data_goes(config: TopicConfig, before: TopicConfig) -> None:
    """The topic is not tiered, and nothing remote of it is deleted."""
    if before.remote_storage_enable:
        raise SettingsError(
            "remote data would be neither read nor deleted: set remote.log.delete.on.disable=true as well to delete it,"
            " or keep remote.storage.enable=true and set remote.log.copy.disable=true to keep it",
            TIERED,
            "false",
        )
    if before.remote_log_delete_on_disable and config.barnabas_remote_storage_compacted_enable:
        raise SettingsError(
            "the topic may have been tiered, and its segments in the store would be left: a compacted topic could"
            " find them again",
            _DELETE_ON_DISABLE,
            "false",
            "true",
        )


def _check_delayed_delivery(config: TopicConfig) -> None:
    """A letter has the headers of its record, and would be delayed again by them."""
    kinds = {
        "compacted": config.compacts,
        "tiered": config.remote_storage_enable,
        "dead-letter": config.errors_deadletterqueue_group_enable,
    }
    for kind, is_it in kinds.items():
        if is_it:
            key = "barnabas.delayed.delivery.enable"
            raise SettingsError(f"a {kind} topic cannot deliver records later", key, "true", "false")


TIERED = "remote.storage.enable"
_DELETE_ON_DISABLE = "remote.log.delete.on.disable"


def _check_tiering(config: TopicConfig, before: TopicConfig | None) -> None:
    """Rules of tiered topics (KIP-405, KIP-950): they are compacted only where the cluster allows it, local data is a
    part of all data, and there is no difference between the two if nothing is copied.

    If segments of a compacted topic are left from an earlier time, replicas have removed tombstones since then of keys
    that are in them.
    """
    if not config.remote_log_storage_system_enable:
        raise SettingsError(f"tiered storage is off in this cluster ({SYSTEM_ENABLE}=false)", TIERED, "true", "false")
    if config.compacts and not config.barnabas_remote_storage_compacted_enable:
        raise SettingsError("a compacted topic cannot be tiered", TIERED, "true", "false")
    if config.compacts and before is not None and not before.remote_storage_enable and (
        before.remote_log_delete_on_disable
    ):
        raise SettingsError(
            f"a compacted topic is not tiered again: {_DELETE_ON_DISABLE}=true says that it was, and its segments in"
            " the store may be left; copy it into a new topic",
            TIERED,
            "true",
            "false",
        )
    check_local_retention(config)


def check_local_retention(config: TopicConfig, prefix: str = "") -> None:
    """Raises `SettingsError` if more is to be kept locally than in all; `prefix` comes before the names of the keys."""
    for local_key, whole_key in (
        ("local_retention_ms", "retention_ms"),
        ("local_retention_bytes", "retention_bytes"),
    ):
        local = cast(int, getattr(config, local_key))
        whole = cast(int, getattr(config, whole_key)) if config.deletes or not config.compacts else _NO_LIMIT
        name = prefix + whole_key.replace("_", ".")
        allowed = ""
        if config.remote_log_copy_disable:
            if local not in (_AS_WHOLE, whole):
                allowed = f"-2 or {whole}"
            problem = f"must be {name}, since remote.log.copy.disable=true"
        elif whole != _NO_LIMIT and (local == _NO_LIMIT or local > whole):
            allowed, problem = f"-2 or 0 to {whole}", f"must be at most {name}"
        if allowed:
            raise SettingsError(problem, prefix + local_key.replace("_", "."), str(local), allowed)
