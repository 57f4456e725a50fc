"""Core: the segments that a tiered log keeps on the local disk.

Local retention deletes only what is remote, or below the log start offset. Its limits are `local.retention.ms` and
`local.retention.bytes`; -2 stands for those of the whole log, which are none if it is only compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.settings.topic import TopicConfig
from barnabas.storage.retention import AgingSegment, Retention

AS_THE_WHOLE = -2
"""A local limit that is the one of the whole log."""


class LocalDeletion(NamedTuple):
    deletable: int
    """Segments to delete, from the front."""
    rolls: bool
    """True if the active segment is due, too: it has to be closed, and copied, before it can be deleted."""


class LocalExtent(NamedTuple):
    """Offsets of a tiered log."""

    log_start_offset: int
    local_log_start_offset: int
    proven_end_offset: int
    """All records from the local log start up to here can be read remotely, exclusive (see `lineage.proven_end`)."""
    high_watermark: int
    log_end_offset: int


def local_limits(config: TopicConfig) -> tuple[int, int]:
    """(milliseconds, bytes); -1 is no limit."""
    retention_ms, retention_bytes = config.local_retention_ms, config.local_retention_bytes
    is_kept = config.compacts and not config.deletes
    whole_ms, whole_bytes = (-1, -1) if is_kept else (config.retention_ms, config.retention_bytes)
    return (
        whole_ms if retention_ms == AS_THE_WHOLE else retention_ms,
        whole_bytes if retention_bytes == AS_THE_WHOLE else retention_bytes,
    )


def local_deletion(
    segments: Sequence[AgingSegment], extent: LocalExtent, config: TopicConfig, now_ms: int
) -> LocalDeletion:
    """The segments, oldest first, that leave the local disk now."""
    retention_ms, retention_bytes = local_limits(config)
    upper_offset = min(extent.high_watermark, max(extent.proven_end_offset, extent.log_start_offset))
    deletion = Retention(segments, upper_offset, extent.log_end_offset)
    deletion.before(max(extent.log_start_offset, extent.local_log_start_offset))
    due = Retention(segments, extent.high_watermark, extent.log_end_offset)
    due.before(max(extent.log_start_offset, extent.local_log_start_offset))
    for each in (deletion, due):
        each.by_size(retention_bytes)
        each.by_age(retention_ms, now_ms)
    active = len(segments) - 1
    return LocalDeletion(min(deletion.deletable, active), rolls=due.deletable > active)
