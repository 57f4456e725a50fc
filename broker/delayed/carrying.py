"""Core: pending batches that retention is about to delete are carried forward: written again at the end of the log.

So a record that is due next year holds back no segment that is a week old. It costs one copy of its batch in each
period of retention.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barnabas.broker.delayed.pending import PendingRecords, place_of
from barnabas.broker.delayed.replay import pending_in
from barnabas.broker.delayed.schedule import Due
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.delayed import Pending, build_pending
from barnabas.protocol.records.delivery_time import AT_ONCE

LEAST_GAIN: Final = 2
"""If more than one of so many offsets is pending, nothing is carried, and the segments stay."""


def to_carry(
    records: Iterable[array[int]], carried: Sequence[tuple[int, int, int]], up_to: int
) -> dict[int, list[int]]:
    """Arrival offsets of the pending records before the offset `up_to` of the log, by place, in order.

    A batch of the log begins at `up_to`, or the log ends. `records`: times and arrival offsets in turn.
    """
    found: dict[int, list[int]] = {}
    for numbers in records:
        for arrival in numbers[1::2]:
            place = place_of(arrival, carried)
            if place < up_to:
                found.setdefault(place, []).append(arrival)
    return dict(sorted(found.items()))


class Carrying:
    """The records that are being carried: those of `to_carry`, without those that are delivered meanwhile."""

    def __init__(self, up_to: int) -> None:
        self.up_to = up_to
        self._left: set[int] | None = None
        self._delivered: list[int] = []

    def delivered(self, taken: Iterable[Due]) -> None:
        arrivals = [due.arrival_offset for due in taken]
        if self._left is None:
            self._delivered += arrivals
        else:
            self._left.difference_update(arrivals)

    def begin(self, wanted: Iterable[int]) -> None:
        self._left = set(wanted).difference(self._delivered)

    def copies(
        self, batches: Iterable[Pending], pending: PendingRecords, now_ms: int
    ) -> Iterator[tuple[bytearray, Pending, list[int]]]:
        """(batch to append, its content, arrival offsets of its pending records) for each batch that has any left."""
        assert self._left is not None
        for batch in batches:
            first = batch.arrival_offset
            arrivals = range(first, first + len(batch.times))
            alive = [each for each in arrivals if each in self._left and pending.place_of(each) < self.up_to]
            if alive:
                times = array("q", [AT_ONCE]) * len(batch.times)
                for each in alive:
                    times[each - first] = batch.times[each - first]
                copy = batch._replace(times=times)
                yield bytearray(build_pending(copy, read_header(batch.batch), now_ms)), copy, alive


def batches_at(stretches: Iterable[bytes], places: Sequence[int]) -> list[Pending]:
    """Raises `CorruptBatch`."""
    return [batch for data in stretches for batch in pending_in(data, places)]
