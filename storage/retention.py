"""Core: the number of segments at the front of a log that retention deletes.

Only complete segments are deleted, oldest first, and none that reaches beyond the high watermark: the log start offset
must never pass it. The order of the rules is Kafka's: first segments before the start offset (DeleteRecords), then
size, then age. Without `delete` in the cleanup policy only the first rule applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.settings.topic import TopicConfig


class AgingSegment(Protocol):
    """Properties of a segment that retention depends on."""

    base_offset: int
    size_bytes: int

    def largest_timestamp(self) -> int:
        """Milliseconds since the epoch."""


class Retention:
    """One evaluation for one log."""

    __slots__ = ("_kept_from", "_log_end_offset", "_segments", "_upper_offset", "deletable")

    def __init__(
        self, segments: Sequence[AgingSegment], high_watermark: int, log_end_offset: int, kept_from: int | None = None
    ) -> None:
        """`kept_from`: records from there on are not deleted by size or age, however old they are."""
        self._segments = segments
        self._kept_from = high_watermark if kept_from is None else kept_from
        self._upper_offset = high_watermark
        self._log_end_offset = log_end_offset
        self.deletable = 0
        """Number of segments from the front to delete; all of them, if even the active one is due."""

    def apply(self, config: TopicConfig, log_start_offset: int, now_ms: int) -> int:
        """Apply all rules in order; returns `deletable`."""
        self.before(log_start_offset)
        if config.deletes:
            self._upper_offset = min(self._upper_offset, self._kept_from)
            self.by_size(config.retention_bytes)
            self.by_age(config.retention_ms, now_ms)
        return self.deletable

    def _next(self) -> tuple[AgingSegment, int, bool] | None:
        """(the oldest remaining segment, the offset after it, whether it is the active one), if it is eligible."""
        place = self.deletable
        if place == len(self._segments):
            return None
        segment = self._segments[place]
        is_active = place + 1 == len(self._segments)
        end_offset = self._log_end_offset if is_active else self._segments[place + 1].base_offset
        if end_offset > self._upper_offset or (is_active and not segment.size_bytes):
            return None
        return segment, end_offset, is_active

    def before(self, log_start_offset: int) -> None:
        """Segments that end at or before the start offset."""
        while (candidate := self._next()) is not None:
            _, end_offset, is_active = candidate
            if is_active or end_offset > log_start_offset:
                return
            self.deletable += 1

    def by_size(self, retention_bytes: int) -> None:
        """The oldest ones, while at least `retention_bytes` remain; -1 is no limit."""
        if retention_bytes < 0:
            return
        surplus = sum(segment.size_bytes for segment in self._segments[self.deletable :]) - retention_bytes
        while (candidate := self._next()) is not None and surplus >= candidate[0].size_bytes:
            surplus -= candidate[0].size_bytes
            self.deletable += 1

    def by_age(self, retention_ms: int, now_ms: int) -> None:
        """Those whose latest record is older than `retention_ms`; -1 is no limit."""
        if retention_ms < 0:
            return
        while (candidate := self._next()) is not None:
            if now_ms - candidate[0].largest_timestamp() <= retention_ms:
                return
            self.deletable += 1
