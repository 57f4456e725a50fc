"""Core: the rule by which the active segment of a log is closed and a new one started.

It is full, or its first record is older than `segment.ms`. An empty one is never closed.
"""

from __future__ import annotations

from barnabas.protocol.records.crc import crc32c
from barnabas.settings.topic import TopicConfig
from barnabas.storage.indexes import MAX_RELATIVE_OFFSET
from barnabas.storage.segment import AppendedBatch, Segment


class RollRule:
    """Rule for one log."""

    __slots__ = ("_active", "_config", "_log_name", "_longest_wait_ms")

    def __init__(self, log_name: str) -> None:
        """`log_name`: topic and partition, which determine the jitter."""
        self._log_name = log_name
        self._active: Segment | None = None
        """The segment and the config of the last append, from which `_longest_wait_ms` follows."""
        self._config: TopicConfig | None = None
        self._longest_wait_ms = 0

    def is_due(self, active: Segment, size_bytes: int, last: AppendedBatch, config: TopicConfig, now_ms: int) -> bool:
        """Before `size_bytes` are appended, whose last batch is `last`."""
        size = active.size_bytes
        if not size:
            return False
        if active is not self._active or config is not self._config:
            self._active, self._config = active, config
            self._longest_wait_ms = self._find_longest_wait_ms(active, config)
        offsets, times = active.offset_index, active.time_index
        return (
            size + size_bytes > config.segment_bytes
            or offsets.entries >= offsets.full_at
            or times.entries >= times.full_at
            or last.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or active.waited_ms(now_ms, last.max_timestamp) > self._longest_wait_ms
        )

    def _find_longest_wait_ms(self, active: Segment, config: TopicConfig) -> int:
        limit = config.longest_segment_ms
        if config.segment_jitter_ms > 0:
            # Derived from the names, so that a replay gets the same jitter, and not all partitions roll together.
            seed = f"{self._log_name}-{active.base_offset}".encode()
            limit -= min(crc32c(seed) % config.segment_jitter_ms, limit)
        return limit
