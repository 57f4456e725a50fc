"""Core: one acquisition: which of the fetched records a member gets.

Records that were released come first, as they lie in the log. New ones are acquired in whole batches of the log
(`batch_optimized`), so that no batch is sent to two members, or up to a number (`record_limit`, KIP-1206). Batches that
were delivered often are acquired in smaller and smaller parts, so that one bad record does not take many good ones with
it when it is archived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from barnabas.broker.shares.in_flight import Batch, InFlight, Lock, OffsetRange, Span
from barnabas.broker.shares.record_state import RecordState

FIRST_DELIVERIES = 2
"""Deliveries after which a batch is not acquired as a whole any more, at least."""


MOST_LOOKED = 400
"""Spans that one acquisition looks at, which bounds its work; a later one continues behind them."""


class AcquiredRange(NamedTuple):
    """Offsets that a member got, both inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int
    """With this delivery."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The terms of an acquisition."""

    member_id: str
    max_records: int
    batch_size: int
    """New records are reported in ranges of about this size."""
    by_record: bool
    """Exactly `max_records` at most; otherwise the batch that exceeds them is acquired as a whole."""
    delivery_count_limit: int
    max_record_locks: int

    @property
    def throttled_from(self) -> int:
        """Delivery count from which batches are acquired in parts."""
        return max(FIRST_DELIVERIES, (self.delivery_count_limit + 1) // 2)

    @property
    def last_count(self) -> int:
        """Delivery count of a record whose next delivery is the last one; -1: that makes no difference."""
        return self.delivery_count_limit - 1 if self.delivery_count_limit > FIRST_DELIVERIES else -1


@dataclass(slots=True)
class Acquisition:
    """Acquires records of `fetched`: the batches of the log from the fetch offset on, none overlapping another."""

    records: InFlight
    wanted: Wanted
    lock: Lock
    fetched: Sequence[OffsetRange]
    fetch_offset: int
    """Nothing in flight before it is available."""
    last_offset: int
    """Nothing behind it is acquired."""
    max_records: int
    ranges: list[AcquiredRange] = field(default_factory=list)
    acquired: int = 0
    looked: int = 0
    """Spans that were looked at."""
    is_throttled: bool = False
    """Nothing more is acquired now: what was acquired is delivered alone."""

    def run(self) -> None:
        base = max(self.fetched[0].first_offset, self.records.start_offset, self.fetch_offset)
        batches = self.records.overlapping(base, self.last_offset)
        for batch in batches:
            if self._is_full:
                return
            if batch.is_gap:
                first, last = max(batch.first_offset, base), min(batch.last_offset, self.last_offset)
                self.records.take_gap(batch, first, last)
                self._acquire_new(first, last, is_gap=True)
            else:
                self._acquire_again(batch, base)
        first = batches[-1].last_offset + 1 if batches else base
        if not self._is_full and first <= self.last_offset:
            self._acquire_new(first, self.last_offset, is_gap=False)

    @property
    def _is_full(self) -> bool:
        return self.is_throttled or self.acquired >= self.max_records or self.looked >= MOST_LOOKED

    # -- records that were acquired before

    def _acquire_again(self, batch: Batch, base: int) -> None:
        self.looked += 1
        if self._is_often_delivered(batch, base):
            if self.acquired > 0:
                self.is_throttled = True
                return
            self.is_throttled = self._acquire_part(batch, base) > 0
            return
        span, left = batch.whole, self.max_records - self.acquired
        inside = self.fetched[0].first_offset <= batch.first_offset and batch.last_offset <= self.last_offset
        if span is None or not inside or (self.wanted.by_record and span.size > left):
            self._acquire_part(batch, base)
        elif span.is_available:
            self.records.acquire(span, self.lock)
            self._report(span)

    def _some(self, batch: Batch, base: int) -> Iterator[Span]:
        """The spans of a batch that were fetched, but not too many."""
        walk = self.records.walk(max(base, batch.first_offset), min(self.last_offset, batch.last_offset))
        return (span for _, span in islice(walk, MOST_LOOKED - self.looked + 1))

    def _is_often_delivered(self, batch: Batch, base: int) -> bool:
        counts = (span.delivery_count for span in self._some(batch, base) if span.is_available)
        return max(counts, default=0) >= self.wanted.throttled_from

    def _acquire_part(self, batch: Batch, base: int) -> int:
        """Acquire available records of a batch one by one, as far as they are fetched. Returns how many."""
        wanted, records = self.wanted, self.records
        taken = 0
        most = -1
        """Limit because of a record that was delivered often."""
        ranges_before = len(self.ranges)
        for span in self._some(batch, base):
            self.looked += 1
            if not span.is_available:
                continue
            count = span.delivery_count
            is_last_delivery = count == wanted.last_count
            if is_last_delivery and taken:
                break
            if count >= wanted.throttled_from and most < 0:
                most = max(1, batch.size >> (count - wanted.throttled_from + 1))
            first = max(span.first_offset, base)
            last = min(span.last_offset, self.last_offset)
            if is_last_delivery:
                last = first
            if wanted.by_record:
                last = min(last, first + self.max_records - self.acquired - 1)
            if taken < most:
                last = min(last, first + most - taken - 1)
            part = records.part(batch, span, first, last)
            records.acquire(part, self.lock)
            taken += part.size
            self._report(part, joins=len(self.ranges) > ranges_before)
            if is_last_delivery or taken == most or (wanted.by_record and self.acquired >= self.max_records):
                break
        return taken

    def _report(self, span: Span, *, joins: bool = False) -> None:
        """`joins`: the last range may be continued."""
        self.acquired += span.size
        if joins:
            before = self.ranges[-1]
            if before.last_offset + 1 == span.first_offset and before.delivery_count == span.delivery_count:
                self.ranges[-1] = before._replace(last_offset=span.last_offset)
                return
        self.ranges.append(AcquiredRange(span.first_offset, span.last_offset, span.delivery_count))

    # -- new records

    def _acquire_new(self, first: int, last: int, *, is_gap: bool) -> None:
        left = self.max_records - self.acquired
        acquired_last = last
        if last - first + 1 > left:
            acquired_last = self._end_of_batch(first + left - 1)
            if is_gap:
                acquired_last = min(acquired_last, last)
        if is_gap and acquired_last < last:
            self.records.add(Batch([Span(acquired_last + 1, last, RecordState.AVAILABLE, 0)], is_gap=True))
        if not self.records.batches or first < self.records.batches[0].first_offset:
            # Where the log has no records, there is nothing to deliver.
            self.records.start_at(first)
        if self.wanted.by_record:
            self._add(first, acquired_last, left)
            return
        for begin, end in self._split(first, acquired_last):
            self._add(begin, end, end - begin + 1)

    def _end_of_batch(self, offset: int) -> int:
        """Last offset of the fetched batch with `offset`; `offset` if there is none."""
        for batch in self.fetched:
            if batch.first_offset <= offset <= batch.last_offset:
                return batch.last_offset
        return offset

    def _split(self, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of the wanted size, each of whole batches of the log."""
        ranges = []
        begin = first
        for batch in self.fetched:
            base = batch.first_offset
            if base > last:
                break
            if base - begin >= self.wanted.batch_size:
                ranges.append((begin, base - 1))
                begin = base
        ranges.append((begin, last))
        return ranges

    def _add(self, first: int, last: int, most: int) -> None:
        """Add a new batch, and acquire its first `most` records."""
        batch = Batch([Span(first, last, RecordState.AVAILABLE, 0)])
        self.records.add(batch)
        span = self.records.part(batch, batch.spans[0], first, first + most - 1)
        self.records.acquire(span, self.lock)
        self._report(span)
