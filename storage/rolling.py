"""When the active segment of a log has to end, and another to begin. A core: facts in, a decision out.

It is full, or its first record has waited for `segment.ms`. An empty one never ends.
"""

from __future__ import annotations

from crc32c import crc32c

from settings.topic import TopicConfig
from storage.segment import AppendedBatch, Segment


class RollRule:
    """Of one log."""

    __slots__ = ("_log_name",)

    def __init__(self, log_name: str) -> None:
        """`log_name`: topic and partition, which jitter is drawn from."""
        self._log_name = log_name

    def is_due(self, active: Segment, size_bytes: int, last: AppendedBatch, config: TopicConfig, now_ms: int) -> bool:
        """Before so many bytes are appended, of which `last` is the last batch."""
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
            # Drawn from the names, so that a replay draws the same, and not all partitions roll together.
            seed = f"{self._log_name}-{active.base_offset}".encode()
            limit -= min(crc32c(seed) % config.segment_jitter_ms, limit)
        return limit
