"""Core: the order in which pending records of one partition are delivered: by time, then by arrival.

A radix heap: a record is in a bucket by the highest byte in which its time differs from the time up to which records
were taken. When the first bucket is due, its records are placed again, in buckets of lower bytes. Each record is moved
a few times in its life, in steps of a bounded number, and costs 16 bytes. A record before that time, as one that is
added when the clock was set back, is in a heap. The schedule knows no clock: times are milliseconds since the epoch,
and records are known by their arrival offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

MOVED_IN_A_STEP: Final = 2_000
_BYTES: Final = 8


class Due(NamedTuple):
    time_ms: int
    arrival_offset: int


class Schedule:
    __slots__ = ("_before", "_buckets", "_count", "_disordered", "_draining", "_moving", "_position", "_taken_to_ms")

    def __init__(self) -> None:
        self._buckets: list[dict[int, array[int]]] = [{} for _ in range(_BYTES)]
        """By byte, 0 is the lowest, and its value: times and offsets in turn."""
        self._taken_to_ms = 0
        """Every record of an earlier time was taken, or is in `_before`."""
        self._disordered: set[int] = set()
        """Buckets of the lowest byte whose records are not in order."""
        self._moving: array[int] = array("q")
        """A bucket that is due. From `_position` on its records are to be placed in lower buckets, or, if `_draining`,
        to be taken."""
        self._position = 0
        self._draining = False
        self._before: list[Due] = []
        """A heap of those that were taken and given back, or added when the time up to which records were taken was
        later."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, time_ms: int, arrival_offset: int) -> None:
        self._count += 1
        if time_ms < self._taken_to_ms:
            heappush(self._before, Due(time_ms, arrival_offset))
        else:
            self._place(time_ms, arrival_offset)

    def _place(self, time_ms: int, arrival_offset: int) -> None:
        difference = time_ms ^ self._taken_to_ms
        level = (difference.bit_length() - 1) // 8 if difference else 0
        digit = time_ms >> 8 * level & 255
        bucket = self._buckets[level].get(digit)
        if bucket is None:
            bucket = self._buckets[level][digit] = array("q")
        elif level == 0 and bucket[-1] > arrival_offset:
            self._disordered.add(digit)
        bucket.append(time_ms)
        bucket.append(arrival_offset)

    def give_back(self, taken: Iterable[Due]) -> None:
        """These were taken, and could not be delivered."""
        for due in taken:
            heappush(self._before, due)
            self._count += 1

    def snapshot(self) -> list[array[int]]:
        """Copies of all that was not taken: times and arrival offsets in turn, in no order."""
        copies = [self._moving[self._position :]]
        copies += [bucket[:] for buckets in self._buckets for bucket in buckets.values()]
        copies.append(array("q", [number for due in self._before for number in due]))
        return copies

    def wake_ms(self) -> int | None:
        """No record is due before; None if there is none. Some records may be due later than that."""
        if self._before:
            return self._before[0].time_ms
        if self._position < len(self._moving):
            return self._taken_to_ms
        first = self._first()
        return None if first is None else self._starts_ms(*first)

    def _first(self) -> tuple[int, int] | None:
        for level, buckets in enumerate(self._buckets):
            if buckets:
                return level, min(buckets)
        return None

    def _starts_ms(self, level: int, digit: int) -> int:
        above = 8 * (level + 1)
        return self._taken_to_ms >> above << above | digit << 8 * level

    def take(self, now_ms: int, most: int) -> list[Due]:
        """Records that are due, at most so many, in order. More of them may be due: then `wake_ms` has passed."""
        taken: list[Due] = []
        while self._before and len(taken) < most and self._before[0].time_ms <= now_ms:
            taken.append(heappop(self._before))
        work = MOVED_IN_A_STEP
        while len(taken) < most and work > 0 and self._taken_to_ms <= now_ms:
            if self._position == len(self._moving):
                first = self._first()
                if first is None or self._starts_ms(*first) > now_ms:
                    break
                self._begin(*first)
            work -= self._drain(taken, most) if self._draining else self._move(work)
        self._count -= len(taken)
        return taken

    def _begin(self, level: int, digit: int) -> None:
        self._taken_to_ms = self._starts_ms(level, digit)
        self._moving = self._buckets[level].pop(digit)
        self._position = 0
        self._draining = level == 0
        if self._draining and digit in self._disordered:
            self._disordered.discard(digit)
            records = iter(self._moving)
            self._moving = array("q", [each for pair in sorted(zip(records, records, strict=True)) for each in pair])

    def _drain(self, taken: list[Due], most: int) -> int:
        end = min(len(self._moving), self._position + 2 * (most - len(taken)))
        records = iter(self._moving[self._position : end])
        taken += map(Due, records, records)
        return self._advance(end)

    def _move(self, most: int) -> int:
        end = min(len(self._moving), self._position + 2 * most)
        records = iter(self._moving[self._position : end])
        for time_ms, arrival_offset in zip(records, records, strict=True):
            self._place(time_ms, arrival_offset)
        return self._advance(end)

    def _advance(self, end: int) -> int:
        moved = (end - self._position) // 2
        self._position = end
        if end == len(self._moving):
            self._moving, self._position, self._draining = array("q"), 0, False
        return moved
