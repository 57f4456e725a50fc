"""Core: which remote segments of a partition its leader deletes, and the log start offset that follows.

Retention counts the whole log: what is remote, and what is only local. Segments go from the front, as long as a limit
is exceeded. Besides go segments below the log start, those of epochs before the log's first one, those that compaction
has replaced, and those whose copy or deletion was given up. The log start offset moves first, so that nobody looks for
what is being deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain

from barnabas.runtime.at_once import Stepwise
from barnabas.storage.remote.lineage import Epochs, belongs_to
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemoteSegment, SegmentState

ABANDONED_AFTER_MS = 600_000
"""A copy that began so long ago, and is not under way here, was given up. A deposed leader that does not know it yet
must not delete what the current one copies, and nobody is deposed for so long without knowledge of it."""
SEGMENTS_IN_A_STEP = 500


@dataclass(frozen=True, slots=True)
class ExpiryFacts:
    """The log as its leader knows it."""

    epochs: Epochs
    """Epochs of the whole log, from the log start offset on."""
    log_start_offset: int
    log_end_offset: int
    only_local_bytes: int
    """Bytes of local segments that are not copied."""
    retention_ms: int
    """-1 is no limit, as in the next one."""
    retention_bytes: int
    now_ms: int
    superseded_kept_ms: int = 60_000
    """Time for which readers that began before may go on in a segment that was replaced."""
    being_copied: Collection[bytes] = ()
    """Ids of segments that this broker copies, or stopped copying less than `ABANDONED_AFTER_MS` ago: the last record
    of such a copy may still be on its way."""


@dataclass(slots=True)
class Expiry:
    """The decision."""

    log_start_offset: int
    """To be set before anything is deleted."""
    delete: dict[bytes, RemoteSegment] = field(default_factory=dict)
    """By id, expired ones first, from the front of the log."""

    def add(self, segment: RemoteSegment) -> None:
        self.delete.setdefault(segment.segment_id, segment)

    @property
    def delete_bytes(self) -> int:
        """Kafka's RemoteDeleteLagBytes."""
        return sum(segment.size_bytes for segment in self.delete.values())


def expire(segments: PartitionSegments, facts: ExpiryFacts) -> Stepwise[Expiry]:
    """Decide in steps. Records that are applied to `segments` meanwhile may or may not count."""
    expiry = Expiry(facts.log_start_offset)
    surplus_bytes = yield from _surplus_bytes(segments, facts)
    for count, segment in enumerate(_each_once(segments, [epoch for epoch, _ in facts.epochs]), 1):
        if count % SEGMENTS_IN_A_STEP == 0:
            yield None
        if _is_below_start(segment, facts):
            expiry.add(segment)
        elif belongs_to(segment, facts.epochs, facts.log_end_offset):
            if not (_is_old(segment, facts) or 0 < segment.size_bytes <= surplus_bytes):
                break
            expiry.add(segment)
            expiry.log_start_offset = max(expiry.log_start_offset, segment.end_offset + 1)
            surplus_bytes = max(0, surplus_bytes - segment.size_bytes)
    yield None
    for segment in segments.unfinished():
        if _is_dangling(segment, facts):
            expiry.add(segment)
    for segment, since_ms in segments.superseded():
        if facts.now_ms - since_ms >= facts.superseded_kept_ms:
            expiry.add(segment)
    for epoch, _ in facts.epochs:
        for segment in segments.unreferenced(epoch):
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED and (
                segment.end_offset < expiry.log_start_offset or _is_old(segment, facts)
            ):
                expiry.add(segment)
    yield from _add_orphans(expiry, segments, facts)
    return expiry


def _each_once(segments: PartitionSegments, epochs: Collection[int]) -> Iterator[RemoteSegment]:
    """The readable segments of these epochs, from the front of the log."""
    seen: set[bytes] = set()
    for epoch in epochs:
        for segment in segments.referenced(epoch):
            if len(segment.leader_epochs) > 1:
                if segment.segment_id in seen:
                    continue
                seen.add(segment.segment_id)
            yield segment


def _surplus_bytes(segments: PartitionSegments, facts: ExpiryFacts) -> Stepwise[int]:
    """Bytes by which the log exceeds its limit; 0 if it does not, or has none."""
    if facts.retention_bytes < 0:
        return 0
    if facts.only_local_bytes + segments.finished_bytes <= facts.retention_bytes:
        return 0
    total_bytes = facts.only_local_bytes
    for count, segment in enumerate(_each_once(segments, [epoch for epoch, _ in facts.epochs]), 1):
        if belongs_to(segment, facts.epochs, facts.log_end_offset) and not _is_below_start(segment, facts):
            total_bytes += segment.size_bytes
        if count % SEGMENTS_IN_A_STEP == 0:
            yield None
    return max(0, total_bytes - facts.retention_bytes)


def _is_old(segment: RemoteSegment, facts: ExpiryFacts) -> bool:
    kept_since_ms = facts.now_ms - facts.retention_ms
    return facts.retention_ms >= 0 and kept_since_ms >= 0 and segment.max_timestamp_ms < kept_since_ms


def _is_below_start(segment: RemoteSegment, facts: ExpiryFacts) -> bool:
    first_epoch, _ = facts.epochs[0]
    newest_epoch, _ = segment.leader_epochs[-1]
    return newest_epoch <= first_epoch and segment.end_offset < facts.log_start_offset


def _is_dangling(segment: RemoteSegment, facts: ExpiryFacts) -> bool:
    if segment.state is SegmentState.DELETE_SEGMENT_STARTED:
        return True
    age_ms = facts.now_ms - segment.event_timestamp_ms
    return segment.segment_id not in facts.being_copied and age_ms > ABANDONED_AFTER_MS


def _add_orphans(expiry: Expiry, segments: PartitionSegments, facts: ExpiryFacts) -> Stepwise[None]:
    """Segments of leaders before the log's first epoch. An unclean election may leave them, and so may a log start that
    moved while they were copied."""
    if not facts.epochs:
        return
    first_epoch, _ = facts.epochs[0]
    for epoch in segments.leader_epochs():
        if epoch >= first_epoch:
            break
        for count, segment in enumerate(chain(segments.referenced(epoch), segments.unreferenced(epoch)), 1):
            is_under_way = segment.state is SegmentState.COPY_SEGMENT_STARTED
            if segment.leader_epochs[-1][0] < first_epoch and not is_under_way:
                expiry.add(segment)
            if count % SEGMENTS_IN_A_STEP == 0:
                yield None
