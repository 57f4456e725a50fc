"""Core: the batches that deliver some pending records: their records, and the settled batch that goes before them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.broker.delayed.pending import PendingRecords
from barnabas.broker.delayed.replay import pending_in
from barnabas.broker.delayed.schedule import Due
from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.builder import build_batch, record_size_bytes
from barnabas.protocol.records.delayed import Settled, build_settled
from barnabas.protocol.records.indexed import IndexedRecords
from barnabas.protocol.records.record import Fields

NEIGHBOURS: Final = 64
"""Records at most so far apart in the log are read together."""
READ_BYTES: Final = 1 << 20
READ_IN_A_DELIVERY_BYTES: Final = 4 << 20
RUNS_IN_A_DELIVERY: Final = 200
OPENED_BYTES: Final = 32 << 20
"""Memory of a broker for produced batches that are kept open for their other records, divided among its partitions."""
LIGHT_BYTES: Final = 64 << 10


class OpenedBatches:
    """The last batches that were opened."""

    __slots__ = ("_batches", "_size_bytes", "_starts")

    def __init__(self) -> None:
        self._batches: dict[int, IndexedRecords] = {}
        """By arrival offset, the one that was opened first at first."""
        self._starts: list[int] = []
        self._size_bytes = 0

    def put(self, arrival_offset: int, records: IndexedRecords) -> None:
        if arrival_offset not in self._batches:
            self._batches[arrival_offset] = records
            insort(self._starts, arrival_offset)
            self._size_bytes += records.size_bytes

    def find(self, arrival: int) -> tuple[IndexedRecords, int] | None:
        """The open batch with this record, and its place there."""
        at = bisect_right(self._starts, arrival) - 1
        if at < 0:
            return None
        start = self._starts[at]
        records = self._batches[start]
        return (records, arrival - start) if arrival - start < len(records) else None

    def is_light(self, taken: Iterable[Due]) -> bool:
        """True if each of these records is in an open batch that is small and not compressed, or in none."""
        batches = [found[0] for due in taken if (found := self.find(due.arrival_offset))]
        return all(batch.size_bytes <= LIGHT_BYTES and not batch.header.compression for batch in batches)

    def trim(self, limit_bytes: int) -> None:
        while self._size_bytes > limit_bytes:
            start = next(iter(self._batches))
            self._size_bytes -= self._batches.pop(start).size_bytes
            del self._starts[bisect_left(self._starts, start)]


class Run(NamedTuple):
    """Neighbouring places of the log, read together."""

    first_offset: int
    last_offset: int


def runs_of(places: Iterable[int]) -> list[Run]:
    runs: list[Run] = []
    for place in sorted(places):
        if runs and place - runs[-1].last_offset <= NEIGHBOURS:
            runs[-1] = runs[-1]._replace(last_offset=place)
        else:
            runs.append(Run(place, place))
    return runs


def readable(taken: Iterable[Due], pending: PendingRecords, opened: OpenedBatches) -> list[int]:
    """Places of the log to read for the first of these records, in order."""
    places: list[int] = []
    runs = 0
    for due in taken:
        if opened.find(due.arrival_offset) is not None:
            continue
        place = pending.place_of(due.arrival_offset)
        if not places or not 0 <= place - places[-1] <= NEIGHBOURS:
            runs += 1
            if runs > RUNS_IN_A_DELIVERY:
                break
        places.append(place)
    return sorted(places)


def open_batches(stretches: Iterable[bytes], places: Sequence[int], opened: OpenedBatches) -> None:
    """Open the pending batches at these places, from stretches of the log. Raises `CorruptBatch`."""
    for data in stretches:
        for pending in pending_in(data, places):
            opened.put(pending.arrival_offset, IndexedRecords(pending.batch))


class Delivery(NamedTuple):
    """One append: a settled batch and a batch of records."""

    buffer: bytearray
    batches: list[tuple[int, BatchHeader]]
    delivered: list[Due]
    vanished: list[Due]
    """These are in the log no more."""

    @property
    def records(self) -> int:
        return len(self.delivered) + len(self.vanished)


def build_delivery(
    taken: Sequence[Due], gone: Container[Due], opened: OpenedBatches, floor: int, limit_bytes: int, now_ms: int
) -> Delivery:
    """Deliver the first of these records, as many as are open and a batch of `limit_bytes` takes. Those that are `gone`
    are in the log no more."""
    records: list[Fields] = []
    delivered: list[Due] = []
    vanished: list[Due] = []
    compression = 0
    size = 0
    for due in taken:
        if due in gone:
            vanished.append(due)
            continue
        found = opened.find(due.arrival_offset)
        if found is None:
            break
        batch, place = found
        record = batch[place]
        size += record_size_bytes(record[2], record[3], record[4])
        if records and (size > limit_bytes or batch.header.compression != compression):
            break
        compression = batch.header.compression
        records.append(record)
        delivered.append(due)
    if not records:
        return Delivery(bytearray(), [], delivered, vanished)
    arrivals = array("q", [due.arrival_offset for due in delivered])
    settled = build_settled(Settled(floor, arrivals), now_ms)
    data = build_batch(records, compression=compression)
    buffer = bytearray(settled + data)
    return Delivery(buffer, [(0, read_header(settled)), (len(settled), read_header(data))], delivered, vanished)
