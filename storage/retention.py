"""Core: the number of segments at the front of a log that retention deletes.

Only complete segments are deleted, oldest first, and none that reaches beyond the high watermark: the log start offset
must never pass it. The order of the rules is Kafka's: first segments before the start offset (DeleteRecords), then
size, then age. Without `delete` in the cleanup policy only the first rule applies, unless the segments are copied to a
remote store: then the other two have the limits of local retention, and delete only what has been copied.
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

    __slots__ = ("_high_watermark", "_kept_from", "_log_end_offset", "_segments", "_upper_offset", "deletable")

    def __init__(
        self, segments: Sequence[AgingSegment], high_watermark: int, log_end_offset: int, kept_from: int | None = None
    ) -> None:
        """`kept_from`: records from there on are not deleted by size or age, however old they are."""
        self._segments = segments
        self._kept_from = high_watermark if kept_from is None else kept_from
        self._high_watermark = self._upper_offset = high_watermark
        self._log_end_offset = log_end_offset
        self.deletable = 0
        """Number of segments from the front to delete; all of them, if even the active one is due."""

    def apply(self, config: TopicConfig, log_start_offset: int, now_ms: int) -> int:
        """Apply all rules in order; returns `deletable`."""
        self.before(log_start_offset)
        if config.deletes or config.copies_to_remote:
            self._upper_offset = min(self._upper_offset, self._kept_from)
            self.by_size(config.disk_retention_bytes)
            self.by_age(config.disk_retention_ms, now_ms)
        return self.deletable

    def active_is_due(self, config: TopicConfig, now_ms: int) -> bool:
        """True if size or age would have deleted even the active segment, so that it should be closed. To be asked
        after `apply`."""
        active = self._segments[-1]
        if self.deletable + 1 != len(self._segments) or not active.size_bytes:
            return False
        if self._log_end_offset > self._high_watermark:
            return False
        size, age_ms = config.disk_retention_bytes, config.disk_retention_ms
        return size == 0 or (age_ms >= 0 and now_ms - active.largest_timestamp() > age_ms)

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
