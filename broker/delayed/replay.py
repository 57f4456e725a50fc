"""Core: finds the pending records in a log, segment by segment, the newest first.

A later segment says which records of the earlier ones are delivered, and from which offset on there are any. So a
leader reads back only to the oldest pending record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from barnabas.broker.delayed.pending import Delivered, PendingRecords
from barnabas.protocol.records.batch import BatchHeader, iterate_batches
from barnabas.protocol.records.delayed import Pending, Settled, pending_offsets, read_delayed


class SegmentScan:
    """The delayed batches of one segment, read in order, in stretches."""

    def __init__(self) -> None:
        self.pending: list[tuple[int, Pending]] = []
        """(offset in the log, the batch without what was produced)."""
        self.settled: list[Settled] = []
        """Those that are followed by the delivery."""
        self.first_epoch: int | None = None
        """Leader epoch of the first batch."""
        self.open: tuple[int, Settled] | None = None
        """(leader epoch, content) of a settled batch at the end."""
        self.next_offset = -1
        """The offset behind the last batch; -1 before the first one."""

    def feed(self, data: bytes) -> None:
        """Complete batches. Raises `CorruptBatch`."""
        for position, header in iterate_batches(data):
            if self.open is not None:
                if header.partition_leader_epoch == self.open[0]:
                    self.settled.append(self.open[1])
                self.open = None
            if self.first_epoch is None:
                self.first_epoch = header.partition_leader_epoch
            self.next_offset = header.next_offset
            if header.is_control:
                self._control(data, position, header)

    def _control(self, data: bytes, position: int, header: BatchHeader) -> None:
        content = read_delayed(data, header, position, with_batch=False)
        if isinstance(content, Pending):
            self.pending.append((header.base_offset, content))
        elif content is not None:
            self.open = (header.partition_leader_epoch, content)


class Replay:
    """Collects what the scans of the segments found, from the newest to the oldest."""

    def __init__(self) -> None:
        self.floor: int | None = None
        """Nothing is pending below this offset; None while that is not known."""
        self._delivered = Delivered()
        self._found: array[int] = array("q")
        """Delivery times and arrival offsets in turn, the newest first."""
        self._places: dict[int, tuple[int, int]] = {}
        """(number of offsets, place) by arrival offset of batches that were carried."""
        self._newer_epoch: int | None = None

    def add(self, scan: SegmentScan) -> None:
        """The segment before the one that was added last."""
        settled = scan.settled
        if scan.open is not None and scan.open[0] == self._newer_epoch:
            settled = [*settled, scan.open[1]]
        for each in settled:
            self._delivered.add(each.arrivals)
            self.floor = each.floor if self.floor is None else max(self.floor, each.floor)
        for place, pending in reversed(scan.pending):
            self._pending(place, pending)
        if scan.first_epoch is not None:
            self._newer_epoch = scan.first_epoch

    def _pending(self, place: int, pending: Pending) -> None:
        arrival = pending.arrival_offset
        if arrival in self._places:
            return  # a copy that was carried further was found
        if arrival != place:
            self._places[arrival] = (len(pending.times), place)
        for time_ms, each in reversed(list(pending_offsets(pending))):
            if each not in self._delivered:
                self._found.append(time_ms)
                self._found.append(each)

    def is_complete_at(self, base_offset: int) -> bool:
        """True if nothing before the segment that begins there is pending."""
        return self.floor is not None and self.floor >= base_offset

    def fill(self, pending: PendingRecords, records_in_step: int) -> Iterator[None]:
        """Add what was found, in steps."""
        for arrival, (count, place) in sorted(self._places.items()):
            pending.carried_to(place, arrival, count)
        found = self._found
        for done, at in enumerate(range(len(found) - 2, -2, -2), 1):
            pending.found(found[at], found[at + 1])
            if done % records_in_step == 0:
                yield None


def pending_in(data: bytes, wanted: Sequence[int]) -> Iterator[Pending]:
    """The pending batches of `data` with one of the `wanted` offsets of the log, which are in order. Raises
    `CorruptBatch`."""
    for position, header in iterate_batches(data):
        if not header.is_control:
            continue
        place = bisect_left(wanted, header.base_offset)
        if place < len(wanted) and wanted[place] < header.next_offset:
            content = read_delayed(data, header, position)
            if isinstance(content, Pending):
                yield content


