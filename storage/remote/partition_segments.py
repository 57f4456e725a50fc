"""Core: the remote segments of one partition by leader epoch and offset: Kafka's RemoteLogMetadataCache.

Leaders of different epochs may copy segments that overlap. For each leader epoch a segment is *referenced* (reads find
it), or *unreferenced*: it is being copied or deleted, or another one covers all of its offsets. Unreferenced ones are
kept until they are deleted, since their objects may exist.

A referenced segment is never covered by another one, so of those that begin at or before an offset the last one reaches
farthest, and an offset is found exactly if a finished segment has it. Kafka lets a late, shorter copy hide a longer
one, and loses the offsets between their ends.

The copies of a compacted log (`compacted_copy`) differ, and have two more rules. If two of them have the same offsets,
the one that was finished later is referenced, and what it covers is *superseded*: never read again. Once a leader has
published one, earlier leaders begin and finish none. The copy of an offset that is read is then the one that its leader
wants, at every prefix of the records.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from barnabas.protocol.primitives import uuid_to_string
from barnabas.storage.remote.compacted_copy import decode_copy
from barnabas.storage.remote.segment import (
    RemotePartitionKey,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    may_move,
)

log = logging.getLogger(__name__)

class PartitionSegments:
    """One partition. Segments that reached DELETE_SEGMENT_FINISHED are forgotten."""

    __slots__ = (
        "_by_id",
        "_epochs",
        "_superseded",
        "_unfinished",
        "finished_bytes",
        "is_complete",
        "key",
        "newest_copier_epoch",
    )

    def __init__(self, key: RemotePartitionKey) -> None:
        self.key = key
        self.is_complete = False
        """False while earlier records are read: an update of an unknown segment is one of a deleted segment then."""
        self.finished_bytes = 0
        """Bytes of all segments in COPY_SEGMENT_FINISHED."""
        self.newest_copier_epoch = -1
        """The latest leader epoch of copies of a compacted log; -1 if there is none."""
        self._by_id: dict[bytes, RemoteSegment] = {}
        self._superseded: dict[bytes, int] = {}
        """Ids of finished segments that another one has replaced in some epoch, and when."""
        self._unfinished: dict[bytes, None] = {}
        """Ids of those that are being copied or deleted."""
        self._epochs: dict[int, _EpochSegments] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def apply(self, record: RemoteSegment | SegmentUpdate) -> bool:
        """Apply the next record of the partition. False if it was dropped: it contradicts those before it."""
        known = self._by_id.get(record.segment_id)
        if not self._is_next(known, record):
            return False
        segment = record if isinstance(record, RemoteSegment) else known.updated(record) if known else None
        if segment is None:
            return False
        self._keep(segment, known)
        copy = decode_copy(segment.custom_metadata)
        if copy is not None:
            self.newest_copier_epoch = max(self.newest_copier_epoch, copy.leader_epoch)
        if known is not None and known.state is segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            # Only what it says of itself has changed, not what it covers.
            return True
        for epoch, start_offset, end_offset in segment.epoch_ranges():
            of_epoch = self._epochs.get(epoch)
            if of_epoch is None:
                of_epoch = self._epochs[epoch] = _EpochSegments()
            gone = of_epoch.moved(segment.segment_id, (start_offset, end_offset), segment.state, copy is not None)
            self._superseded.update(dict.fromkeys(gone, segment.event_timestamp_ms))
        return True

    def clear(self) -> None:
        """All segments are deleted."""
        self._by_id.clear()
        self._unfinished.clear()
        self._superseded.clear()
        self._epochs.clear()
        self.finished_bytes = 0

    def _keep(self, segment: RemoteSegment, known: RemoteSegment | None) -> None:
        if known is not None and known.state is SegmentState.COPY_SEGMENT_FINISHED:
            self.finished_bytes -= known.size_bytes
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            self.finished_bytes += segment.size_bytes
            self._unfinished.pop(segment.segment_id, None)
        else:
            self._unfinished[segment.segment_id] = None
        if segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self._by_id[segment.segment_id], self._unfinished[segment.segment_id]
            self._superseded.pop(segment.segment_id, None)
        else:
            self._by_id[segment.segment_id] = segment

    def _is_next(self, known: RemoteSegment | None, record: RemoteSegment | SegmentUpdate) -> bool:
        name = f"segment {uuid_to_string(record.segment_id)} of {self.key}"
        if isinstance(record, SegmentUpdate) and known is None:
            if self.is_complete:
                log.warning("%s is unknown: its move to %s is ignored", name, record.state.name)
            return False
        if isinstance(record, RemoteSegment) and record.state is not SegmentState.COPY_SEGMENT_STARTED:
            log.error("%s cannot begin as %s: its record is ignored", name, record.state.name)
            return False
        before = None if known is None else known.state
        if self._is_of_a_former_leader(record):
            log.warning("%s: a later leader has copied segments: its move to %s is ignored", name, record.state.name)
            return False
        if may_move(before, record.state):
            return True
        before_name = "unknown" if before is None else before.name
        log.error("%s cannot move from %s to %s: its record is ignored", name, before_name, record.state.name)
        return False

    def _is_of_a_former_leader(self, record: RemoteSegment | SegmentUpdate) -> bool:
        if record.state not in (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED):
            return False
        copy = decode_copy(record.custom_metadata)
        return (-1 if copy is None else copy.leader_epoch) < self.newest_copier_epoch

    # -- answers

    def segment_for(self, leader_epoch: int, offset: int) -> RemoteSegment | None:
        """The readable segment with `offset`, if a leader of `leader_epoch` wrote it.

        Only its records up to the end of that epoch in the log of the current leader belong to the partition."""
        of_epoch = self._epochs.get(leader_epoch)
        segment_id = None if of_epoch is None else of_epoch.at(offset)
        return None if segment_id is None else self._by_id[segment_id]

    def highest_offset(self, leader_epoch: int) -> int | None:
        """Last offset of `leader_epoch` that was ever copied, inclusive; it stays if the segment is deleted."""
        of_epoch = self._epochs.get(leader_epoch)
        return None if of_epoch is None else of_epoch.highest_offset

    def first_offset(self, leader_epoch: int) -> int | None:
        """First readable offset of `leader_epoch`."""
        of_epoch = self._epochs.get(leader_epoch)
        return None if of_epoch is None else of_epoch.first_offset

    def state_of(self, segment_id: bytes) -> SegmentState | None:
        """None for an unknown or deleted segment."""
        segment = self._by_id.get(segment_id)
        return None if segment is None else segment.state

    def is_readable(self, segment: RemoteSegment) -> bool:
        """True if it is referenced in each of its epochs."""
        ranges = list(segment.epoch_ranges())
        return all(self._references(epoch, segment.segment_id, start_offset) for epoch, start_offset, _ in ranges)

    def _references(self, epoch: int, segment_id: bytes, start_offset: int) -> bool:
        of_epoch = self._epochs.get(epoch)
        return of_epoch is not None and of_epoch.references(segment_id, start_offset)

    # -- lists

    def superseded(self) -> Iterator[tuple[RemoteSegment, int]]:
        """Finished segments that nobody reads again, because others have replaced them, and when they were replaced."""
        for segment_id, since_ms in list(self._superseded.items()):
            segment = self._by_id.get(segment_id)
            if segment is None or segment.state is not SegmentState.COPY_SEGMENT_FINISHED:
                continue
            if not any(self._references(epoch, segment_id, start) for epoch, start, _ in segment.epoch_ranges()):
                yield segment, since_ms

    def all(self) -> list[RemoteSegment]:
        """All segments, in the order in which they were begun."""
        return list(self._by_id.values())

    def unfinished(self) -> list[RemoteSegment]:
        """Segments that are being copied or deleted, or were when their broker stopped."""
        return [self._by_id[each] for each in self._unfinished]

    def leader_epochs(self) -> list[int]:
        """Epochs that ever had a segment, ascending."""
        return sorted(self._epochs)

    def referenced(self, leader_epoch: int) -> Iterator[RemoteSegment]:
        """The readable segments with records of `leader_epoch`, by start offset, as of now."""
        of_epoch = self._epochs.get(leader_epoch)
        by_id = self._by_id
        return iter(()) if of_epoch is None else (by_id[each] for each in list(of_epoch.referenced_ids()))

    def unreferenced(self, leader_epoch: int) -> list[RemoteSegment]:
        """The other segments with records of `leader_epoch`."""
        of_epoch = self._epochs.get(leader_epoch)
        return [] if of_epoch is None else [self._by_id[each] for each in of_epoch.unreferenced_ids()]


class _EpochSegments:
    """Segments with records of one leader epoch: Kafka's RemoteLogLeaderEpochState."""

    __slots__ = ("_covered", "_ends", "_ids", "_moving", "_starts", "_superseded", "highest_offset")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._ids: list[bytes] = []
        """Referenced segments: first and last offset of the epoch, and the id. All three columns ascend."""
        self._covered: dict[bytes, tuple[int, int]] = {}
        """Finished segments with offsets that a referenced one has, too: id to first and last offset."""
        self._moving: dict[bytes, None] = {}
        """Those that are being copied or deleted."""
        self._superseded: dict[bytes, None] = {}
        self.highest_offset: int | None = None

    def moved(
        self, segment_id: bytes, offsets: tuple[int, int], state: SegmentState, is_compacted: bool
    ) -> Iterable[bytes]:
        """`offsets` are the first and the last one. Returns the ids of segments that are superseded now."""
        start_offset, end_offset = offsets
        self._moving.pop(segment_id, None)
        self._covered.pop(segment_id, None)
        self._superseded.pop(segment_id, None)
        self._remove(segment_id, start_offset)
        if state is SegmentState.COPY_SEGMENT_FINISHED:
            if self.highest_offset is None or end_offset > self.highest_offset:
                self.highest_offset = end_offset
            if is_compacted:
                return self._supersede(segment_id, start_offset, end_offset)
            self._add(segment_id, start_offset, end_offset)
        elif state is not SegmentState.DELETE_SEGMENT_FINISHED:
            self._moving[segment_id] = None
        return ()

    def _supersede(self, segment_id: bytes, start_offset: int, end_offset: int) -> Iterable[bytes]:
        """The copy of a compacted log takes the place of what it covers, unless a longer one covers it."""
        place = bisect_right(self._starts, start_offset) - 1
        known = (self._starts[place], self._ends[place]) if place >= 0 else (start_offset, start_offset - 1)
        if known[1] >= end_offset and known != (start_offset, end_offset):
            self._superseded[segment_id] = None
            return (segment_id,)
        gone = [each for each, _, _ in self._put(segment_id, start_offset, end_offset)]
        gone += [each for each, (first, last) in self._covered.items() if start_offset <= first and last <= end_offset]
        for each in gone:
            self._covered.pop(each, None)
            self._superseded[each] = None
        return gone

    def _add(self, segment_id: bytes, start_offset: int, end_offset: int) -> None:
        covering = bisect_right(self._starts, start_offset) - 1
        if covering >= 0 and self._ends[covering] >= end_offset:
            self._covered[segment_id] = (start_offset, end_offset)
            return
        for each, first, last in self._put(segment_id, start_offset, end_offset):
            self._covered[each] = (first, last)

    def _put(self, segment_id: bytes, start_offset: int, end_offset: int) -> list[tuple[bytes, int, int]]:
        """Reference a segment; returns those that it covers, with their first and last offsets."""
        first = bisect_left(self._starts, start_offset)
        after = bisect_right(self._ends, end_offset)
        places = range(first, after)
        covered = [(self._ids[place], self._starts[place], self._ends[place]) for place in places]
        self._starts[first:after] = [start_offset]
        self._ends[first:after] = [end_offset]
        self._ids[first:after] = [segment_id]
        return covered

    def references(self, segment_id: bytes, start_offset: int) -> bool:
        place = bisect_left(self._starts, start_offset)
        return place < len(self._ids) and self._ids[place] == segment_id

    def _remove(self, segment_id: bytes, start_offset: int) -> None:
        """A referenced segment goes: those that it covered are readable again."""
        place = bisect_left(self._starts, start_offset)
        if place == len(self._ids) or self._ids[place] != segment_id:
            return
        del self._starts[place], self._ends[place], self._ids[place]
        covered, self._covered = self._covered, {}
        for each, (first, last) in covered.items():
            self._add(each, first, last)

    @property
    def first_offset(self) -> int | None:
        return self._starts[0] if self._starts else None

    def at(self, offset: int) -> bytes | None:
        place = bisect_right(self._starts, offset) - 1
        return self._ids[place] if place >= 0 and self._ends[place] >= offset else None

    def referenced_ids(self) -> Iterable[bytes]:
        return self._ids

    def unreferenced_ids(self) -> Iterable[bytes]:
        yield from self._covered
        yield from self._superseded
        yield from self._moving
