"""Core: the records of a share partition that are in flight: those from its start offset to its end offset.

They are kept in batches, each as it was fetched at first. A batch is one span as long as all its records are in one
state, and is cut where their states differ; so the costs depend on differences, and not on the number of records.
Between two batches there may be offsets without records.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from barnabas.broker.shares.record_state import MOVES, RecordState
from barnabas.broker.shares.state import StateBatch
from barnabas.protocol.acknowledge_type import AcknowledgeType


@dataclass(slots=True, eq=False)
class Lock:
    """The acquisition lock of what one call acquired, or renewed. Several spans may share it."""

    member_id: str
    deadline_ms: int
    first_offset: int
    last_offset: int
    held: int = 0
    """Records that are still locked by it."""
    has_expired: bool = False
    is_backoff: bool = False
    """No member has the records: they become available when it expires."""


class OffsetRange(NamedTuple):
    """Offsets, both inclusive."""

    first_offset: int
    last_offset: int


@dataclass(slots=True, eq=False)
class Change:
    """Moves that count when they are stored: those of an acknowledgement, or of a release."""

    stored: list[StateBatch] = field(default_factory=list)
    """In order."""
    given_up: list[OffsetRange] = field(default_factory=list)
    """Released records that were delivered as often as allowed."""
    has_available: bool = False
    """Records became available that need not be stored."""
    acknowledged: Counter[AcknowledgeType] = field(default_factory=Counter)
    """Records by type of acknowledgement."""


class Span:
    """Neighbouring records in one state."""

    __slots__ = ("change", "delivery_count", "first_offset", "last_offset", "lock", "state", "target")

    def __init__(self, first_offset: int, last_offset: int, state: RecordState, delivery_count: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        self.delivery_count = delivery_count
        self.lock: Lock | None = None
        """None unless the state is ACQUIRED."""
        self.change: Change | None = None
        self.target: RecordState | None = None
        """The state after `change`; None without one."""

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE

    @property
    def is_complete(self) -> bool:
        """True if its records need no further delivery, once its change is stored."""
        return (self.target if self.target is not None else self.state).is_terminal


class Batch:
    """Records that were fetched together."""

    __slots__ = ("is_gap", "size", "spans")

    def __init__(self, spans: list[Span], *, is_gap: bool = False) -> None:
        self.spans = spans
        self.is_gap = is_gap
        """True if an earlier leader left out these offsets: where the log has no records for them is not known yet."""
        self.size = self.last_offset - self.first_offset + 1
        """At first; the start offset may have moved into the batch since."""

    @property
    def first_offset(self) -> int:
        return self.spans[0].first_offset

    @property
    def last_offset(self) -> int:
        return self.spans[-1].last_offset

    @property
    def whole(self) -> Span | None:
        """The only span; None if the batch is cut."""
        return self.spans[0] if len(self.spans) == 1 else None

    def place_of(self, offset: int) -> int:
        """Index of the span with an offset of this batch."""
        return bisect_right(self.spans, offset, key=_first_offset) - 1


_first_offset = attrgetter("first_offset")


class InFlight:
    """The batches, in order. All changes of a span go through here, so that the counts are right."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        """Every record before it is acknowledged, archived, or not in the log any more."""
        self.end_offset = start_offset
        """No record from here on was ever acquired."""
        self.batches: list[Batch] = []
        self.complete = 0
        """Records in flight that need no further delivery, once all changes are stored."""

    @property
    def size(self) -> int:
        """Offsets in flight, with those that have no records."""
        return self.end_offset - self.start_offset

    # -- lookups

    def place_at_or_before(self, offset: int) -> int:
        """Index of the batch that begins there, or of the last one that begins before; -1 if there is none."""
        return bisect_right(self.batches, offset, key=_first_offset) - 1

    def place_from(self, offset: int) -> int:
        """Index of the first batch that ends there or later."""
        place = self.place_at_or_before(offset)
        return place if place >= 0 and self.batches[place].last_offset >= offset else place + 1

    def overlapping(self, first_offset: int, last_offset: int) -> list[Batch]:
        return self.batches[self.place_from(first_offset) : self.place_at_or_before(last_offset) + 1]

    def walk(self, first_offset: int, last_offset: int) -> Iterator[tuple[Batch, Span]]:
        """The spans with offsets in this range, the first and the last perhaps only in part. Spans may be cut and
        batches added or removed between two of them."""
        offset = first_offset
        while offset <= last_offset:
            place = self.place_from(offset)
            if place == len(self.batches):
                return
            batch = self.batches[place]
            if batch.first_offset > last_offset:
                return
            span = batch.spans[batch.place_of(max(offset, batch.first_offset))]
            offset = span.last_offset + 1
            yield batch, span

    # -- batches

    def add(self, batch: Batch) -> None:
        """Add a batch between the others or behind them."""
        insort(self.batches, batch, key=_first_offset)
        self.complete += sum(span.size for span in batch.spans if span.is_complete)
        if batch.last_offset >= self.end_offset:
            self.end_offset = batch.last_offset + 1

    def take_gap(self, gap: Batch, first_offset: int, last_offset: int) -> None:
        """Remove this range from a gap."""
        self.batches.remove(gap)
        for first, last in ((gap.first_offset, first_offset - 1), (last_offset + 1, gap.last_offset)):
            if first <= last:
                self.add(Batch([Span(first, last, RecordState.AVAILABLE, 0)], is_gap=True))

    def start_at(self, offset: int) -> None:
        """Move the start offset forward, and drop what is before it, in whatever state."""
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        batches = self.batches
        place = self.place_from(offset)
        for batch in batches[:place]:
            self._drop(batch.spans)
        del batches[:place]
        if batches and batches[0].first_offset < offset:
            first = batches[0]
            self.cut_at(first, offset)
            count = first.place_of(offset)
            self._drop(first.spans[:count])
            del first.spans[:count]

    def _drop(self, spans: Iterable[Span]) -> None:
        for span in spans:
            if span.is_complete:
                self.complete -= span.size
            self._unlock(span)
            span.change = None

    def advance(self) -> bool:
        """Move the start offset over records that need no further delivery. True if it moved."""
        before = self.start_offset
        left = (span.first_offset for batch in self.batches for span in batch.spans if not span.state.is_terminal)
        self.start_at(next(left, self.end_offset))
        return self.start_offset > before

    # -- spans

    def cut_at(self, batch: Batch, offset: int) -> None:
        """Let a span begin at this offset of the batch."""
        place = batch.place_of(offset)
        span = batch.spans[place]
        if span.first_offset == offset:
            return
        behind = Span(offset, span.last_offset, span.state, span.delivery_count)
        behind.lock, behind.change, behind.target = span.lock, span.change, span.target
        span.last_offset = offset - 1
        batch.spans.insert(place + 1, behind)

    def part(self, batch: Batch, span: Span, first_offset: int, last_offset: int) -> Span:
        """The part of a span in this range, cut out of it."""
        first, last = max(span.first_offset, first_offset), min(span.last_offset, last_offset)
        if first > span.first_offset:
            self.cut_at(batch, first)
            span = batch.spans[batch.place_of(first)]
        if last < span.last_offset:
            self.cut_at(batch, last + 1)
        return span

    def acquire(self, span: Span, lock: Lock) -> None:
        self._move(span, RecordState.ACQUIRED)
        span.delivery_count += 1
        self.lock(span, lock)

    def lock(self, span: Span, lock: Lock) -> None:
        """Put the records under this lock, instead of the one that they have."""
        self._unlock(span)
        span.lock = lock
        lock.held += span.size

    def begin(self, span: Span, change: Change, target: RecordState) -> None:
        """The records move to `target` once the change is stored."""
        assert span.change is None, "a record is in one change at a time"
        span.change, span.target = change, target
        self.complete += span.size if target.is_terminal else 0
        _append(change.stored, span, target)

    def commit(self, batch: Batch, span: Span) -> None:
        """The change of the span is stored."""
        target = span.target
        assert target is not None
        self._end_change(span)
        self.move(batch, span, target)

    def hold(self, span: Span, backoff: Lock) -> None:
        """The acquired records, and those of a stored release, become available when `backoff` expires."""
        if span.change is not None:
            self._end_change(span)
        self.lock(span, backoff)
        backoff.first_offset = min(backoff.first_offset, span.first_offset)
        backoff.last_offset = max(backoff.last_offset, span.last_offset)

    def roll_back(self, span: Span) -> None:
        """The change of the span is not stored: the records are acquired as before."""
        self._end_change(span)

    def move(self, batch: Batch, span: Span, state: RecordState) -> None:
        """Move a whole span to a state other than ACQUIRED at once."""
        self._move(span, state)
        self._unlock(span)
        self.complete += span.size if state.is_terminal else 0
        self._join(batch, span)

    def _move(self, span: Span, state: RecordState) -> None:
        assert (span.state, state) in MOVES, f"offset {span.first_offset} cannot move from {span.state} to {state}"
        span.state = state

    def _end_change(self, span: Span) -> None:
        self.complete -= span.size if span.is_complete else 0
        span.change = span.target = None

    def _unlock(self, span: Span) -> None:
        if span.lock is not None:
            span.lock.held -= span.size
            span.lock = None

    def _join(self, batch: Batch, span: Span) -> None:
        """Make one span of it and its neighbours if nothing distinguishes them."""
        spans = batch.spans
        place = batch.place_of(span.first_offset)
        if place + 1 < len(spans) and _alike(span, spans[place + 1]):
            span.last_offset = spans.pop(place + 1).last_offset
        if place > 0 and _alike(spans[place - 1], span):
            spans[place - 1].last_offset = spans.pop(place).last_offset


def _alike(span: Span, behind: Span) -> bool:
    return (
        span.state is behind.state
        and span.delivery_count == behind.delivery_count
        and span.lock is behind.lock is None
        and span.change is behind.change is None
    )


def _append(stored: list[StateBatch], span: Span, state: RecordState) -> None:
    """Add the state of a span to what is stored; it continues the last one if it can."""
    if stored:
        last = stored[-1]
        if (last.last_offset + 1, last.state, last.delivery_count) == (span.first_offset, state, span.delivery_count):
            stored[-1] = last._replace(last_offset=span.last_offset)
            return
    stored.append(StateBatch(span.first_offset, span.last_offset, int(state), span.delivery_count))
