"""Core: the rule by which the active segment of a log is closed and a new one started.

It is full, or its first record is older than `segment.ms`. An empty one is never closed.
"""

from __future__ import annotations

from barnabas.protocol.records.crc import crc32c
from barnabas.settings.topic import TopicConfig
from barnabas.storage.segment import AppendedBatch, Segment


class RollRule:
    """Rule for one log."""

    __slots__ = ("_log_name",)

    def __init__(self, log_name: str) -> None:
        """`log_name`: topic and partition, which determine the jitter."""
        self._log_name = log_name

    def is_due(self, active: Segment, size_bytes: int, last: AppendedBatch, config: TopicConfig, now_ms: int) -> bool:
        """Before `size_bytes` are appended, whose last batch is `last`."""
        if not active.size_bytes:
            return False
        offsets = active.offset_index
        return (
            active.size_bytes + size_bytes > config.segment_bytes
            or offsets.is_full
            or active.time_index.is_full
            or not offsets.accepts(last.last_offset)
            or active.waited_ms(now_ms, last.max_timestamp) > self._longest_wait_ms(active, config)
        )

    def _longest_wait_ms(self, active: Segment, config: TopicConfig) -> int:
        limit = config.longest_segment_ms
        if config.segment_jitter_ms > 0:
            # Derived from the names, so that a replay gets the same jitter, and not all partitions roll together.
            seed = f"{self._log_name}-{active.base_offset}".encode()
            limit -= min(crc32c(seed) % config.segment_jitter_ms, limit)
        return limit
