"""Core: the segments at the front of a log that its configuration no longer keeps on this disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.settings.topic import TopicConfig
from barnabas.storage.remote.local_retention import LocalExtent, local_deletion
from barnabas.storage.retention import AgingSegment, Retention


class AgingLog(Protocol):
    """Properties of a log that retention depends on."""

    config: TopicConfig
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    high_watermark: int
    highest_copied_offset: int
    pending_from: int | None

    @property
    def segments(self) -> Sequence[AgingSegment]:
        """Oldest first; the last is the active one."""

    @property
    def recovery_point(self) -> int: ...


def deletable_to(log: AgingLog, now_ms: int) -> int:
    """The offset up to which retention would delete, if no record were pending."""
    segments = log.segments
    retention = Retention(segments, log.high_watermark, log.log_end_offset)
    count = retention.apply(log.config, log.log_start_offset, now_ms)
    return log.log_end_offset if count == len(segments) else segments[count].base_offset


def segments_to_delete(log: AgingLog, now_ms: int) -> tuple[int, bool]:
    """(number of segments, whether to close the active one)"""
    config = log.config
    if config.copies_to_remote:
        extent = LocalExtent(
            log.log_start_offset,
            log.local_log_start_offset,
            # Leader epochs of what is deleted here must be durable: they are not in any other file.
            min(log.highest_copied_offset + 1, log.recovery_point),
            log.high_watermark,
            log.log_end_offset,
        )
        return local_deletion(log.segments, extent, config, now_ms)
    upper_offset = log.high_watermark
    if config.barnabas_delayed_delivery_enable:
        # A follower deletes what its leader has deleted.
        upper_offset = min(upper_offset, log.pending_from or 0)
    retention = Retention(log.segments, log.high_watermark, log.log_end_offset, upper_offset)
    return retention.apply(config, log.log_start_offset, now_ms), False
