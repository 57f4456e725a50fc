"""The ordered segments of one log, and lookups across them: read positions, records by time, aborted transactions.

Segments touch: each begins where the previous one ends; compaction may remove the last records of the earlier one.
`PartitionLog` decides what may be read and what is truncated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.search import TooLargeToSearch, first_record_at
from barnabas.runtime.world import File, FileRegion
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import AbortedTransaction

_new: Any = tuple.__new__  # skips the Python-level constructor of named tuples


class LogSlice(NamedTuple):
    """Complete batches in one file, ready to be sent."""

    first_offset: int
    """The requested offset; it is in the first batch, or before it if that is the next existing batch."""
    file: File
    position: int
    size_bytes: int
    upper_offset: int
    """All records in it have lower offsets."""

    @property
    def region(self) -> FileRegion:
        return FileRegion(self.file, self.position, self.size_bytes)


class TimestampedOffset(NamedTuple):
    """Result of a lookup by time."""

    timestamp: int
    offset: int
    leader_epoch: int


class SegmentList:
    """Oldest first; the last is the active one. All lookups raise OSError or `CorruptIndex`."""

    __slots__ = ("_bases", "all")

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        """Read-only."""
        self._bases = [segment.base_offset for segment in segments]

    @property
    def active(self) -> Segment:
        return self.all[-1]

    @property
    def first_offset(self) -> int:
        """Base offset of the oldest segment."""
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all)

    @property
    def open_files(self) -> int:
        return sum(segment.open_files for segment in self.all)

    def place_of(self, offset: int) -> int:
        """Index of the segment that holds the offset, or would; -1 before all of them."""
        return bisect_right(self._bases, offset) - 1

    def end_if_cut(self, offset: int) -> int:
        """Log end after a removal of all batches that reach `offset`: there, or at the base of the batch that contains
        it.
        """
        return self.all[self.place_of(offset)].end_if_cut(offset)

    # -- changes

    def add(self, segment: Segment) -> None:
        """Add the new active segment."""
        self.all.append(segment)
        self._bases.append(segment.base_offset)
        if len(self.all) > 2:
            # The segment just closed keeps its boundaries, for readers that are about to reach the roll.
            self.all[-3].forget_boundaries()

    def take_from(self, place: int) -> list[Segment]:
        """Remove this segment and all behind it."""
        taken = self.all[place:]
        del self.all[place:]
        del self._bases[place:]
        return taken

    def take_first(self, count: int) -> list[Segment]:
        """Remove the oldest segments."""
        taken = self.all[:count]
        del self.all[:count]
        del self._bases[:count]
        return taken

    def find(self, some: Sequence[Segment]) -> int | None:
        """Index of the first of these if they are adjacent and before the active one; otherwise None."""
        place = self.place_of(some[0].base_offset)
        end = place + len(some)
        here = place >= 0 and end < len(self.all) and self.all[place:end] == list(some)
        return place if here else None

    def replace(self, place: int, count: int, copy: Segment) -> None:
        """Replace `count` segments by `copy`."""
        self.all[place : place + count] = [copy]
        self._bases[place : place + count] = [copy.base_offset]

    # -- lookups

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, log_end_offset: int, at_least_one: bool
    ) -> LogSlice | None:
        """Complete batches of one segment from the one with `offset` on, below `upper_offset`; both are in the log.

        At most `max_bytes`, but one batch of any size if `at_least_one`. Raises `CorruptBatch` if the first one has no
        valid header.
        """
        segments = self.all
        place = len(segments) - 1
        if offset < self._bases[place]:
            place = bisect_right(self._bases, offset, 0, place) - 1
        segment = segments[place]
        position = segment.start_of_read(offset)
        while position == segment.size_bytes:
            # Compaction removed the rest of this segment; the next existing offset is in a later one.
            place += 1
            if place == len(segments):
                return None
            segment = segments[place]
            position = segment.checked_start(0)
        next_base = segments[place + 1].base_offset if place + 1 < len(segments) else log_end_offset
        end = segment.size_bytes if upper_offset >= next_base else segment.position_of(upper_offset)
        upper_offset = min(upper_offset, next_base)
        size = end - position
        if size > max_bytes:
            boundary = segment.boundary_within(position, position + max_bytes)
            size = boundary.position - position
            if size:
                upper_offset = boundary.next_offset
                segment.remember_cursor(boundary.next_offset, boundary.position)
            elif at_least_one:
                size = boundary.next_size_bytes
        if size <= 0:
            return None
        file = segment.opened_file or segment.log_file()
        found: LogSlice = _new(LogSlice, (offset, file, position, size, upper_offset))
        return found

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records or their marker in [from_offset, upper_offset), in the order of their
        markers.
        """
        found: list[AbortedTransaction] = []
        for segment in self.all[max(self.place_of(from_offset), 0) :]:
            more, complete = segment.aborted.collect(from_offset, upper_offset)
            found += more
            if complete:
                break
        return found

    def offset_for_timestamp(self, timestamp: int, log_start_offset: int) -> TimestampedOffset | None:
        """The first record at or after `timestamp`; None if there is none."""
        for segment in self.all:
            if segment.largest_timestamp() < timestamp:
                continue
            floor = segment.time_index.lookup(timestamp)
            position = segment.offset_index.lookup(max(floor.offset, log_start_offset)).position
            for at, header in segment.headers(position):
                if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                    continue
                found = _first_record(segment, at, header, timestamp, log_start_offset)
                if found is not None:
                    return found
        return None

    def offset_for_max_timestamp(self, log_start_offset: int) -> TimestampedOffset | None:
        """The first record with the largest timestamp of all (KIP-734); None if no record has one."""
        if not self.all:
            return None
        segment = max(self.all, key=lambda segment: segment.max_timestamp.timestamp)
        timestamp, offset = segment.max_timestamp
        if timestamp < 0:
            return None
        for at, header in segment.headers(segment.offset_index.lookup(offset).position):
            if header.max_timestamp == timestamp:
                return _first_record(segment, at, header, timestamp, log_start_offset)
        return None


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, log_start_offset: int
) -> TimestampedOffset | None:
    batch = segment.log_file().pread(header.size_bytes, position)
    try:
        found = first_record_at(batch, header, timestamp, log_start_offset)
    except TooLargeToSearch:
        # A reader that begins at the batch misses nothing.
        found = (max(header.base_offset, log_start_offset), header.max_timestamp)
    if found is None:
        return None
    offset, found_timestamp = found
    return TimestampedOffset(found_timestamp, offset, header.partition_leader_epoch)
