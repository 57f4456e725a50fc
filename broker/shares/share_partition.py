"""Core: one share partition on its leader: which records are delivered to whom, and what becomes of them (KIP-932).

Deals with offsets and members; knows no records, no network and no timer. An acknowledgement is a `Change`: it is
begun, stored by the caller, and then finished, with or without success. Work that grows with what clients do comes in
steps, between which anything else may happen to the partition. Milliseconds are those of the node's monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import NamedTuple

from barnabas.broker.fetch_context import InSteps
from barnabas.broker.shares.acquisition import AcquiredRange, Acquisition, Wanted
from barnabas.broker.shares.in_flight import Batch, Change, InFlight, Lock, OffsetRange, Span
from barnabas.broker.shares.record_state import STATE_AFTER, RecordState
from barnabas.broker.shares.state import ShareState, StateBatch
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import ErrorCode, KafkaError

SPANS_IN_A_STEP = 200
TYPES_IN_A_STEP = 2_000
"""Acknowledgement types of single offsets that one step reads."""
DEAD_LOCKS = 64
"""Locks without records that may linger, beside as many as there are live ones."""


class Acknowledgement(NamedTuple):
    """The acknowledgement of a range of offsets."""

    first_offset: int
    last_offset: int
    types: Sequence[int]
    """One for all, or one for each offset."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Configs of the group, as they are at the time of a call."""

    lock_ms: int
    delivery_count_limit: int
    max_record_locks: int
    may_renew: bool
    backoff_ms: int = 0
    """Time until a record is available again after its first delivery; it doubles with each further one. 0: none."""
    backoff_max_ms: int = 0
    has_dead_letters: bool = False
    """Records are copied to the group's dead-letter topic before they are archived."""

    @property
    def archived(self) -> RecordState:
        """The state of a record that nobody will accept."""
        return RecordState.ARCHIVING if self.has_dead_letters else RecordState.ARCHIVED

    def backoff_after_ms(self, deliveries: int) -> int:
        if not self.backoff_ms:
            return 0
        return min(self.backoff_max_ms, self.backoff_ms << min(max(deliveries - 1, 0), 40))


class DeadLetters(NamedTuple):
    """Records to be copied to the dead-letter topic."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool
    """False: they were delivered as often as allowed."""


class _Backoffs:
    """The backoffs that begin at one time."""

    def __init__(self, now_ms: int, terms: Terms) -> None:
        self._now_ms = now_ms
        self._terms = terms
        self.locks: dict[int, Lock] = {}
        """By time."""

    def of(self, span: Span) -> Lock | None:
        """None if the records are available at once."""
        wait_ms = self._terms.backoff_after_ms(span.delivery_count)
        if not wait_ms:
            return None
        lock = self.locks.get(wait_ms)
        if lock is None:
            deadline_ms = self._now_ms + wait_ms
            lock = self.locks[wait_ms] = Lock("", deadline_ms, span.first_offset, span.last_offset, is_backoff=True)
        return lock


class SharePartition:
    def __init__(self, state: ShareState, start_offset: int) -> None:
        """`start_offset`: that of the state, or the one chosen in its place. Raises ValueError if the state
        contradicts itself."""
        self.state_epoch = state.state_epoch
        self._records = InFlight(start_offset)
        self._locks: list[tuple[int, int, Lock]] = []
        """A heap by deadline."""
        self._locked = 0
        """Locks that were ever made."""
        self._available_from: int | None = start_offset if state.batches else None
        """Nothing in flight before this offset is available; None: nothing at all."""
        self._archiving: deque[tuple[OffsetRange, bool | None]] = deque()
        """Ranges with records in ARCHIVING, and whether they were rejected; None: that is not known any more."""
        self._restore(state.batches)

    def _restore(self, batches: Iterable[StateBatch]) -> None:
        records = self._records
        for stored in batches:
            if stored.first_offset < records.end_offset or stored.last_offset < stored.first_offset:
                raise ValueError(f"{stored} after offset {records.end_offset - 1}")
            if stored.first_offset > records.end_offset:
                # An earlier leader had acquired these, or the log has no records there.
                gap = Span(records.end_offset, stored.first_offset - 1, RecordState.AVAILABLE, 0)
                records.add(Batch([gap], is_gap=True))
            state = RecordState(stored.state)
            if state is RecordState.ACQUIRED:
                raise ValueError(f"{stored} cannot be stored as acquired")
            if state is RecordState.ARCHIVING:
                self._archiving.append((OffsetRange(stored.first_offset, stored.last_offset), None))
            records.add(Batch([Span(stored.first_offset, stored.last_offset, state, stored.delivery_count)]))
        records.advance()

    # -- offsets

    @property
    def start_offset(self) -> int:
        return self._records.start_offset

    @property
    def end_offset(self) -> int:
        """No record from here on was ever acquired."""
        return self._records.end_offset

    @property
    def in_flight(self) -> int:
        """Offsets in flight."""
        return self._records.size

    @property
    def batches_in_flight(self) -> int:
        return len(self._records.batches)

    @property
    def delivery_complete_count(self) -> int:
        """Records in flight that need no further delivery, for the lag of the group (KIP-1226)."""
        return self._records.complete

    def spans(self) -> Iterator[tuple[int, int, RecordState, int]]:
        """(first offset, last offset, state, delivery count) of everything in flight."""
        for it in self.each_span():
            yield it.first_offset, it.last_offset, it.state, it.delivery_count

    def each_span(self) -> Iterator[Span]:
        """Everything in flight, in order, to be read only."""
        return (span for batch in self._records.batches for span in batch.spans)

    def next_fetch_offset(self) -> int:
        """The offset from which records can be acquired."""
        records = self._records
        if self._available_from is not None:
            for _, span in records.walk(max(self._available_from, records.start_offset), records.end_offset):
                if span.is_available:
                    self._available_from = span.first_offset
                    return span.first_offset
            self._available_from = None
        return records.end_offset

    def _has_available(self, offset: int) -> None:
        if self._available_from is None or offset < self._available_from:
            self._available_from = offset

    def room(self, max_record_locks: int) -> int:
        """Records that may be acquired behind the end offset."""
        return max_record_locks - self._records.size

    def can_acquire(self, max_record_locks: int) -> bool:
        """False if as many records are in flight as allowed, and none of them is available."""
        return self._records.size < max_record_locks or self.next_fetch_offset() < self._records.end_offset

    # -- acquiring

    def acquire(
        self, wanted: Wanted, fetched: Sequence[OffsetRange], fetch_offset: int, now_ms: int, lock_ms: int
    ) -> list[AcquiredRange]:
        """Lock records of `fetched` for a member: the batches of the log from the one with `fetch_offset` on, or from
        the first that exists behind it."""
        records = self._records
        if not fetched or fetched[-1].last_offset < records.start_offset:
            return []
        max_records, last_offset = self._room(wanted, fetched[-1].last_offset, fetch_offset)
        if max_records <= 0:
            return []
        self._archive_vanished(fetch_offset, fetched[0].first_offset - 1)
        lock = Lock(wanted.member_id, now_ms + lock_ms, fetched[0].first_offset, fetched[-1].last_offset, now_ms)
        acquisition = Acquisition(records, wanted, lock, fetched, fetch_offset, last_offset, max_records)
        acquisition.run()
        if acquisition.ranges:
            self._add_lock(lock)
            if wanted.by_record:
                self._has_available(acquisition.ranges[0].first_offset)
        return acquisition.ranges

    def _room(self, wanted: Wanted, last_offset: int, fetch_offset: int) -> tuple[int, int]:
        """(most records, last offset) that may be acquired."""
        records = self._records
        most = min(wanted.max_records, wanted.max_record_locks - records.size)
        if most <= 0 and fetch_offset < records.end_offset:
            # As many are in flight as allowed, but some of them are available.
            return min(wanted.max_records, records.end_offset - fetch_offset), min(last_offset, records.end_offset - 1)
        return most, last_offset

    def archive_aborted(self, acquired: list[AcquiredRange], aborted: Sequence[OffsetRange]) -> list[AcquiredRange]:
        """Archive what was just acquired of aborted transactions. `aborted` is in order. Returns what remains."""
        for first, last in aborted:
            for batch, span in self._records.walk(first, last):
                if span.state is RecordState.ACQUIRED and span.change is None:
                    part = self._records.part(batch, span, first, last)
                    self._records.move(batch, part, RecordState.ARCHIVED)
        self._records.advance()
        return without(acquired, aborted)

    # -- acknowledging

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[Acknowledgement], now_ms: int, terms: Terms
    ) -> InSteps[Change]:
        """Begin what a member wants. Raises KafkaError, and then nothing is begun: INVALID_RECORD_STATE if it does not
        have the records, INVALID_REQUEST for offsets that are not in flight."""
        change = Change()
        renewed = Lock(member_id, now_ms + terms.lock_ms, self.end_offset, -1, now_ms)
        done = 0
        try:
            for each in acknowledgements:
                if each.last_offset < self.start_offset:
                    continue
                self._check_in_flight(each)
                for first, last, kind in runs_of(each):
                    change.acknowledged[kind] += last - first + 1
                    for batch, span in self._records.walk(max(first, self.start_offset), last):
                        self._check_owner(span, member_id)
                        part = self._records.part(batch, span, first, last)
                        if kind is AcknowledgeType.RENEW:
                            self._renew(part, renewed, terms)
                        else:
                            target = terms.archived if kind is AcknowledgeType.REJECT else STATE_AFTER[kind]
                            self._begin(part, change, target, terms)
                        done += 1
                        if done % SPANS_IN_A_STEP == 0:
                            yield None
        except KafkaError:
            yield from self.finish(change, terms, now_ms, stored=False)
            raise
        finally:
            if renewed.held:
                self._add_lock(renewed)
        return change

    def _check_in_flight(self, each: Acknowledgement) -> None:
        records = self._records
        first = max(each.first_offset, records.start_offset)
        place = records.place_at_or_before(each.last_offset)
        if records.place_at_or_before(first) < 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, f"offsets {first} to {each.last_offset} are not in flight"
            )
        end = records.batches[place].last_offset
        if end < each.last_offset:
            text = f"offset {each.last_offset} is behind the acquired records, which end at {end}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    def _check_owner(self, span: Span, member_id: str) -> None:
        lock, code = span.lock, ErrorCode.INVALID_RECORD_STATE
        if lock is None:
            raise KafkaError(code, f"offset {span.first_offset} is {span.state.name.lower()}, and not acquired")
        if span.change is not None:
            raise KafkaError(code, f"offset {span.first_offset} is being acknowledged by an earlier request")
        if lock.member_id != member_id:
            raise KafkaError(code, f"offset {span.first_offset} is acquired by another member")

    def _renew(self, span: Span, renewed: Lock, terms: Terms) -> None:
        if not terms.may_renew:
            code = ErrorCode.INVALID_RECORD_STATE
            raise KafkaError(code, "share.renew.acknowledge.enable is false for the group")
        self._records.lock(span, renewed)
        renewed.first_offset = min(renewed.first_offset, span.first_offset)
        renewed.last_offset = max(renewed.last_offset, span.last_offset)

    def _begin(self, span: Span, change: Change, target: RecordState, terms: Terms) -> None:
        if target is RecordState.AVAILABLE and span.delivery_count >= terms.delivery_count_limit:
            target = terms.archived
            change.given_up.append(OffsetRange(span.first_offset, span.last_offset))
        self._records.begin(span, change, target)

    def release(self, member_id: str, terms: Terms) -> InSteps[Change]:
        """Begin to release all that a member has."""
        change = Change()
        for lock in [lock for _, _, lock in self._locks if lock.member_id == member_id]:
            for place, (_, span) in enumerate(self._records.walk(lock.first_offset, lock.last_offset), 1):
                if span.lock is lock and span.change is None:
                    self._begin(span, change, RecordState.AVAILABLE, terms)
                if place % SPANS_IN_A_STEP == 0:
                    yield None
        change.stored.sort()
        return change

    def finish(self, change: Change, terms: Terms, now_ms: int, *, stored: bool) -> InSteps[bool]:
        """End a change; it was `stored`, or could not be. True if there may be more to acquire now."""
        records, backoffs = self._records, _Backoffs(now_ms, terms)
        given_up = {first for first, _ in change.given_up}
        found_available = False
        place = 0
        try:
            for first, last, _, _ in change.stored:
                for batch, span in records.walk(first, last):
                    if span.change is change:
                        if stored:
                            self._commit(batch, span, backoffs, is_rejected=span.first_offset not in given_up)
                        else:
                            self._roll_back(batch, span, terms, backoffs)
                        if span.is_available:
                            found_available = True
                            self._has_available(first)
                    place += 1
                    if place % SPANS_IN_A_STEP == 0:
                        yield None
        finally:
            self._add_backoffs(backoffs)
        return records.advance() or found_available

    def _commit(self, batch: Batch, span: Span, backoffs: _Backoffs, *, is_rejected: bool) -> None:
        backoff = backoffs.of(span) if span.target is RecordState.AVAILABLE else None
        if backoff is not None:
            self._records.hold(span, backoff)
            return
        if span.target is RecordState.ARCHIVING:
            self._archiving.append((OffsetRange(span.first_offset, span.last_offset), is_rejected))
        self._records.commit(batch, span)

    def _roll_back(self, batch: Batch, span: Span, terms: Terms, backoffs: _Backoffs) -> None:
        self._records.roll_back(span)
        if span.state is RecordState.ARCHIVING:
            self._archiving.append((OffsetRange(span.first_offset, span.last_offset), None))
        if span.lock is not None and span.lock.has_expired:
            self._let_go(batch, span, terms, backoffs)

    def _let_go(self, batch: Batch, span: Span, terms: Terms, backoffs: _Backoffs) -> RecordState:
        """Take acquired records from their member at once. Returns the state to be stored."""
        is_over = span.delivery_count >= terms.delivery_count_limit
        state = terms.archived if is_over else RecordState.AVAILABLE
        backoff = None if is_over else backoffs.of(span)
        if backoff is not None:
            self._records.hold(span, backoff)
            return state
        if state is RecordState.ARCHIVING:
            self._archiving.append((OffsetRange(span.first_offset, span.last_offset), False))
        self._records.move(batch, span, state)
        return state

    def _add_backoffs(self, backoffs: _Backoffs) -> None:
        for lock in backoffs.locks.values():
            if lock.held:
                self._add_lock(lock)

    # -- dead letters

    @property
    def has_dead_letters(self) -> bool:
        """True if there may be some to copy."""
        return bool(self._archiving)

    def next_dead_letters(self, most: int, terms: Terms) -> list[DeadLetters]:
        """The first records that are to be copied, at most so many, of one range."""
        while self._archiving:
            (first, last), is_rejected = self._archiving[0]
            found: list[DeadLetters] = []
            for _, span in self._records.walk(max(first, self.start_offset), last):
                if span.state is RecordState.ARCHIVING and span.change is None:
                    begin, end = max(first, span.first_offset), min(last, span.last_offset, first + most - 1)
                    count = span.delivery_count
                    rejected = count < terms.delivery_count_limit if is_rejected is None else is_rejected
                    if begin <= end:
                        found.append(DeadLetters(begin, end, count, rejected))
                if span.last_offset >= first + most - 1 or len(found) == SPANS_IN_A_STEP:
                    break
            if found:
                return found
            if first + most > last:
                self._archiving.popleft()
            else:
                self._archiving[0] = (OffsetRange(first + most, last), is_rejected)
        return []

    def archive(self, copied: Iterable[DeadLetters]) -> Change:
        """Begin to archive what was copied, or need not be."""
        change, records = Change(), self._records
        for each in copied:
            for batch, span in records.walk(max(each.first_offset, self.start_offset), each.last_offset):
                if span.state is RecordState.ARCHIVING and span.change is None:
                    part = records.part(batch, span, each.first_offset, each.last_offset)
                    records.begin(part, change, RecordState.ARCHIVED)
        return change

    # -- acquisition locks

    def next_deadline_ms(self) -> int | None:
        """When the next lock expires; None: there is none."""
        locks = self._locks
        while locks and not locks[0][2].held:
            heappop(locks)
        return locks[0][0] if locks else None

    def expire(self, now_ms: int, terms: Terms) -> InSteps[Change]:
        """Release what members have had for too long. It counts at once; the result is to be stored, but not to be
        finished."""
        expired, backoffs = Change(), _Backoffs(now_ms, terms)
        try:
            while self._locks and self._locks[0][0] <= now_ms:
                lock = heappop(self._locks)[2]
                lock.has_expired = True
                for place, (batch, span) in enumerate(self._records.walk(lock.first_offset, lock.last_offset), 1):
                    if span.lock is lock and span.change is None:
                        self._expire(batch, span, expired, terms, backoffs)
                    if place % SPANS_IN_A_STEP == 0:
                        yield None
        finally:
            self._add_backoffs(backoffs)
        self._records.advance()
        expired.stored.sort()
        return expired

    def _expire(self, batch: Batch, span: Span, expired: Change, terms: Terms, backoffs: _Backoffs) -> None:
        first, last, count = span.first_offset, span.last_offset, span.delivery_count
        if span.lock is not None and span.lock.is_backoff:
            self._records.move(batch, span, RecordState.AVAILABLE)
            self._has_available(first)
            expired.has_available = True
            return
        state = self._let_go(batch, span, terms, backoffs)
        expired.stored.append(StateBatch(first, last, int(state), count))
        if span.is_available:
            self._has_available(first)
        if state is not RecordState.AVAILABLE:
            expired.given_up.append(OffsetRange(first, last))

    def _add_lock(self, lock: Lock) -> None:
        locks = self._locks
        self._locked += 1
        if self._locked % DEAD_LOCKS == 0:
            locks[:] = [each for each in locks if each[2].held]
            heapify(locks)
        heappush(locks, (lock.deadline_ms, self._locked, lock))

    # -- the log

    def log_start_moved(self, log_start_offset: int) -> None:
        """The log has no records before this offset any more, and nothing in flight there counts."""
        self._records.start_at(log_start_offset)
        self._records.advance()

    def _archive_vanished(self, first: int, last: int) -> None:
        """The log has no records in this range: compaction has removed them, or they were never there."""
        if first > last:
            return
        records = self._records
        for batch in records.overlapping(first, last):
            if batch.is_gap:
                begin, end = max(batch.first_offset, first), min(batch.last_offset, last)
                records.take_gap(batch, begin, end)
                records.add(Batch([Span(begin, end, RecordState.ARCHIVED, 0)]))
        for batch, span in records.walk(first, last):
            if span.is_available:
                records.move(batch, records.part(batch, span, first, last), RecordState.ARCHIVED)
        records.advance()


def runs_of(acknowledgement: Acknowledgement) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """(first offset, last offset, type) of neighbours with one type."""
    first_offset, last_offset, types = acknowledgement
    if len(types) == 1:
        yield first_offset, last_offset, AcknowledgeType(types[0])
        return
    offset = first_offset
    for start in range(0, len(types), TYPES_IN_A_STEP):
        for kind, same in groupby(types[start : start + TYPES_IN_A_STEP]):
            count = sum(1 for _ in same)
            yield offset, offset + count - 1, AcknowledgeType(kind)
            offset += count


def without(acquired: Iterable[AcquiredRange], removed: Sequence[OffsetRange]) -> list[AcquiredRange]:
    """The ranges without the offsets of the removed ones. Both are in order."""
    left: list[AcquiredRange] = []
    place = 0
    for each in acquired:
        first = each.first_offset
        while place < len(removed) and removed[place].last_offset < first:
            place += 1
        behind = place
        while behind < len(removed) and removed[behind].first_offset <= each.last_offset:
            if first < removed[behind].first_offset:
                left.append(each._replace(first_offset=first, last_offset=removed[behind].first_offset - 1))
            first = max(first, removed[behind].last_offset + 1)
            behind += 1
        if first <= each.last_offset:
            left.append(each._replace(first_offset=first))
    return left
