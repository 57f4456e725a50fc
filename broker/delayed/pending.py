"""Core: the pending records of one partition on its leader: when they are due, and where in the log they are."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

from barnabas.broker.delayed.schedule import Due, Schedule

_CHUNK_BITS: Final = 4
"""Pending records are counted by chunks of so many bits of offsets."""


class PendingRecords:
    __slots__ = ("_carried", "_chunks", "_counts", "schedule")

    def __init__(self) -> None:
        self.schedule = Schedule()
        self._carried: list[tuple[int, int, int]] = []
        """(first arrival offset, number of offsets, offset in the log) of batches that were carried forward, in order.
        """
        self._counts: dict[int, int] = {}
        """Records that are not delivered, by the chunk of their place in the log."""
        self._chunks: deque[int] = deque()
        """Chunks with records, and some that have none any more, in order."""

    def __len__(self) -> int:
        """Records that are not delivered."""
        return sum(self._counts.values())

    def found(self, time_ms: int, arrival: int) -> None:
        """The log has this record, which is pending; `carried_to` was called for its batch, if that was carried."""
        self.schedule.add(time_ms, arrival)
        self._count(self.place_of(arrival))

    def _count(self, place: int) -> None:
        chunk = place >> _CHUNK_BITS
        if chunk in self._counts:
            self._counts[chunk] += 1
            return
        self._counts[chunk] = 1
        if self._chunks and chunk < self._chunks[-1]:
            self._chunks = deque(sorted({*self._chunks, chunk}))
        elif not self._chunks or chunk > self._chunks[-1]:
            self._chunks.append(chunk)

    def carried_to(self, place: int, arrival_offset: int, count: int) -> None:
        """The batch that arrived at `arrival_offset`, of so many offsets, is at `place` now."""
        start = bisect_left(self._carried, (arrival_offset,))
        if start < len(self._carried) and self._carried[start][0] == arrival_offset:
            del self._carried[start]
        insort(self._carried, (arrival_offset, count, place))

    def carry(self, place: int, arrival_offset: int, count: int, alive: Sequence[int]) -> None:
        """`carried_to`, and the records with the arrival offsets `alive` are pending there."""
        for arrival in alive:
            self._uncount(self.place_of(arrival))
        self.carried_to(place, arrival_offset, count)
        for arrival in alive:
            self._count(self.place_of(arrival))

    def forget_carried(self, log_start_offset: int) -> None:
        """Batches that were carried to places before the start of the log are gone."""
        self._carried = [each for each in self._carried if each[2] >= log_start_offset]

    @property
    def carried(self) -> list[tuple[int, int, int]]:
        """A copy of (first arrival offset, number of offsets, place), in order."""
        return self._carried[:]

    def place_of(self, arrival: int) -> int:
        """An offset of the log in the batch that holds the record."""
        return place_of(arrival, self._carried)

    def delivered(self, taken: Sequence[Due]) -> None:
        """These were taken from the schedule and are delivered, or do not exist any more."""
        for _, arrival in taken:
            self._uncount(self.place_of(arrival))

    def _uncount(self, place: int) -> None:
        chunk = place >> _CHUNK_BITS
        left = self._counts[chunk] - 1
        if left:
            self._counts[chunk] = left
        else:
            del self._counts[chunk]

    def floor(self, log_end_offset: int) -> int:
        """No record that is not delivered is below this offset of the log."""
        chunks = self._chunks
        while chunks and chunks[0] not in self._counts:
            chunks.popleft()
        return chunks[0] << _CHUNK_BITS if chunks else log_end_offset


def place_of(arrival: int, carried: Sequence[tuple[int, int, int]]) -> int:
    """`PendingRecords.place_of`, by its `carried`."""
    at = bisect_right(carried, arrival, key=_first) - 1 if carried else -1
    if at >= 0:
        first, count, place = carried[at]
        if arrival < first + count:
            return place
    return arrival


def _first(carried: tuple[int, int, int]) -> int:
    return carried[0]


class Delivered:
    """The set of arrival offsets that settled batches name: one bit for each offset near one of them."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}

    def add(self, arrivals: array[int]) -> None:
        chunks = self._chunks
        for arrival in arrivals:
            chunk = chunks.get(arrival >> 12)
            if chunk is None:
                chunk = chunks[arrival >> 12] = bytearray(512)
            chunk[arrival >> 3 & 511] |= 1 << (arrival & 7)

    def __contains__(self, arrival: int) -> bool:
        chunk = self._chunks.get(arrival >> 12)
        return chunk is not None and bool(chunk[arrival >> 3 & 511] >> (arrival & 7) & 1)
