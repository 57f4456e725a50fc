"""The segments of one log in their order, and what is found by looking through them: a place to read from, a record of
some time, transactions that were aborted.

Segments touch: each begins where the one before it ends; compaction may take the last records of the earlier one away.
Knows no rules of the log: what may be read and what is to be cut is `PartitionLog`'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from protocol.records.batch import BatchHeader
from protocol.records.search import TooLargeToSearch, first_record_at
from runtime.world import File, FileRegion
from storage.aborted import AbortedTransaction
from storage.segment import Segment


class LogSlice(NamedTuple):
    """Whole batches in one file, ready to be sent."""

    first_offset: int
    """The offset that was asked for; it is in the first batch, or the first batch is the next that exists."""
    file: File
    position: int
    size_bytes: int
    upper_offset: int
    """No record in it has this offset or more."""

    @property
    def region(self) -> FileRegion:
        return FileRegion(self.file, self.position, self.size_bytes)


class TimestampedOffset(NamedTuple):
    """What a lookup by time finds."""

    timestamp: int
    offset: int
    leader_epoch: int


class SegmentList:
    """Oldest first; the last is the active one. All lookups raise OSError or `CorruptIndex`."""

    __slots__ = ("_bases", "all")

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        """To look at."""
        self._bases = [segment.base_offset for segment in segments]

    @property
    def active(self) -> Segment:
        return self.all[-1]

    @property
    def first_offset(self) -> int:
        """The base of the oldest one."""
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all)

    @property
    def open_files(self) -> int:
        return sum(segment.open_files for segment in self.all)

    def place_of(self, offset: int) -> int:
        """Which one holds the offset, or would; -1 before all of them."""
        return bisect_right(self._bases, offset) - 1

    def end_if_cut(self, offset: int) -> int:
        """Where the log would end without all batches that reach `offset`: there, or where a batch begins that it lies
        within.
        """
        return self.all[self.place_of(offset)].end_if_cut(offset)

    # -- changing it

    def add(self, segment: Segment) -> None:
        """The new active one."""
        self.all.append(segment)
        self._bases.append(segment.base_offset)
        if len(self.all) > 2:
            # The one just sealed keeps its boundaries, for those who read up to the roll.
            self.all[-3].forget_boundaries()

    def take_from(self, place: int) -> list[Segment]:
        """Take this one and all behind it out."""
        taken = self.all[place:]
        del self.all[place:]
        del self._bases[place:]
        return taken

    def take_first(self, count: int) -> list[Segment]:
        """Take the oldest out."""
        taken = self.all[:count]
        del self.all[:count]
        del self._bases[:count]
        return taken

    def find(self, some: Sequence[Segment]) -> int | None:
        """Where these lie one after the other, before the active one; None if they do not."""
        place = self.place_of(some[0].base_offset)
        end = place + len(some)
        here = place >= 0 and end < len(self.all) and self.all[place:end] == list(some)
        return place if here else None

    def replace(self, place: int, count: int, copy: Segment) -> None:
        """Put `copy` where so many others are."""
        self.all[place : place + count] = [copy]
        self._bases[place : place + count] = [copy.base_offset]

    # -- looking things up

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, log_end_offset: int, at_least_one: bool
    ) -> LogSlice | None:
        """Whole batches of one segment from the one with `offset` on, below `upper_offset`; both are in the log.

        No more than `max_bytes`, unless that is not even one batch and `at_least_one` is wanted.
        """
        segments = self.all
        place = len(segments) - 1
        if offset < self._bases[place]:
            place = bisect_right(self._bases, offset, 0, place) - 1
        segment = segments[place]
        position = segment.position_of(offset)
        while position == segment.size_bytes:
            # Compaction took the rest of this segment: the next existing offset is further on.
            place += 1
            if place == len(segments):
                return None
            segment, position = segments[place], 0
        next_base = segments[place + 1].base_offset if place + 1 < len(segments) else log_end_offset
        end = segment.size_bytes if upper_offset >= next_base else segment.position_of(upper_offset)
        upper_offset = min(upper_offset, next_base)
        size = end - position
        if size > max_bytes:
            boundary = segment.boundary_within(position, position + max_bytes)
            size = boundary.position - position
            if size:
                if boundary.next_offset >= 0:
                    upper_offset = boundary.next_offset
                    segment.remember_cursor(boundary.next_offset, boundary.position)
            elif at_least_one:
                size = boundary.next_size_bytes
        return LogSlice(offset, segment.log_file(), position, size, upper_offset) if size > 0 else None

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Those with records or their marker in [from_offset, upper_offset), in the order of their markers."""
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
