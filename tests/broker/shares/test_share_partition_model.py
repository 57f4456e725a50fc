"""A share partition against a dictionary of offsets, under random fetches, acknowledgements, failures and clocks.

The model knows the state of every offset and nothing of batches. The log has batches of several records, holes as
compaction leaves them, and aborted transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.broker.fetch_context import at_once
from barnabas.broker.shares.acquisition import Wanted
from barnabas.broker.shares.in_flight import Change, OffsetRange
from barnabas.broker.shares.record_state import RecordState
from barnabas.broker.shares.share_partition import Acknowledgement, SharePartition, Terms
from barnabas.broker.shares.state import ShareState, StateBatch
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import KafkaError

LIMIT = 3
LOCK_MS = 100
MAX_LOCKS = 12
MEMBERS = ("a", "b", "c")
TERMS = Terms(LOCK_MS, LIMIT, MAX_LOCKS, may_renew=True)
TYPES = st.sampled_from([it.value for it in AcknowledgeType])


@dataclass
class Known:
    """One offset."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = -1
    moving_to: RecordState | None = None
    has_expired: bool = False


@dataclass
class Pending:
    """A change that is being stored."""

    change: Change
    offsets: list[int] = field(default_factory=list)


class ShareMachine(RuleBasedStateMachine):
    """Subclasses add a backoff and a dead-letter topic."""

    terms = TERMS

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[OffsetRange] = []
        self.aborted: list[OffsetRange] = []
        self.log_start = self.log_end = 0
        self.known: dict[int, Known] = {}
        self.pending: list[Pending] = []
        self.partition = SharePartition(ShareState(0, 0), 0)
        self.start_seen = 0
        self.stored: dict[int, StateBatch] = {}
        self.stored_start = 0

    # -- the log

    @rule(size=st.integers(1, 5), hole=st.sampled_from([0, 0, 0, 1, 4]), aborted=st.booleans())
    def produce(self, size: int, hole: int, aborted: bool) -> None:
        first = self.log_end + hole
        batch = OffsetRange(first, first + size - 1)
        self.log.append(batch)
        if aborted and size < 3:
            self.aborted.append(batch)
        self.log_end = first + size

    @precondition(lambda self: self.log_end > self.log_start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.log_end))
        self.log = [it for it in self.log if it.last_offset >= self.log_start]
        self.partition.log_start_moved(self.log_start)
        self.forget_before(self.log_start)

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        if len(self.log) > 2:
            del self.log[data.draw(st.integers(0, len(self.log) - 2))]

    # -- members

    def fetched(self, offset: int) -> list[OffsetRange]:
        return [it for it in self.log if it.last_offset >= offset]

    @rule(
        member=st.sampled_from(MEMBERS),
        most=st.integers(1, 8),
        batch_size=st.integers(1, 6),
        by_record=st.booleans(),
        batches=st.integers(1, 4),
    )
    def fetch(self, member: str, most: int, batch_size: int, by_record: bool, batches: int) -> None:
        partition = self.partition
        if not partition.can_acquire(MAX_LOCKS):
            return
        offset = partition.next_fetch_offset()
        fetched = self.fetched(offset)[:batches]
        wanted = Wanted(member, most, batch_size, by_record, LIMIT, MAX_LOCKS)
        end_before = partition.end_offset
        acquired = partition.acquire(wanted, fetched, offset, self.now_ms, LOCK_MS)
        got = [(each, it.delivery_count) for it in acquired for each in range(it.first_offset, it.last_offset + 1)]
        assert [each for each, _ in got] == sorted({each for each, _ in got})
        if by_record:
            assert len(got) <= most
        for each, count in got:
            known = self.known.setdefault(each, Known())
            assert known.state is RecordState.AVAILABLE, f"{each} is {known.state}"
            assert fetched[0].first_offset <= each <= fetched[-1].last_offset
            assert count == known.count + 1 <= LIMIT
            self.known[each] = Known(RecordState.ACQUIRED, count, member, self.now_ms + LOCK_MS)
        if fetched:
            for each in range(offset, fetched[0].first_offset):
                if (known := self.known.get(each)) and known.state is RecordState.AVAILABLE:
                    known.state = RecordState.ARCHIVED
            for each in range(min(end_before, partition.start_offset), partition.end_offset):
                # New offsets that nobody got: the rest of a batch, or holes between batches.
                self.known.setdefault(each, Known())
        aborted = [it for it in self.aborted if fetched and it in fetched]
        remaining = partition.archive_aborted(acquired, aborted)
        left = {each for it in remaining for each in range(it.first_offset, it.last_offset + 1)}
        gone = {each for it in aborted for each in range(it.first_offset, it.last_offset + 1)}
        assert left == {each for each, _ in got} - gone
        for each in gone:
            known = self.known.get(each)
            if known and known.state is RecordState.ACQUIRED and known.moving_to is None:
                self.known[each] = Known(RecordState.ARCHIVED, known.count)

    @rule(member=st.sampled_from(MEMBERS), data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        if not self.known:
            return
        first = data.draw(st.integers(min(self.known) - 1, max(self.known)))
        last = data.draw(st.integers(first, min(first + 6, max(self.known) + 1)))
        if data.draw(st.booleans()):
            types = [data.draw(TYPES)]
        else:
            types = data.draw(st.lists(TYPES, min_size=last - first + 1, max_size=last - first + 1))
        each_type = types * (last - first + 1) if len(types) == 1 else types
        covered = self.covered()
        named = zip(range(first, last + 1), each_type, strict=True)
        said = {offset: kind for offset, kind in named if offset in covered}
        before = {offset: Known(**vars(self.known[offset])) for offset in said}
        may = all(it.member == member and it.moving_to is None for it in before.values())
        try:
            change = at_once(
                self.partition.acknowledge(member, [Acknowledgement(first, last, types)], self.now_ms, self.terms)
            )
        except KafkaError:
            # A range that is not in flight is refused as a whole; else renewals before the refused offset count.
            in_flight = last in covered and max(first, self.partition.start_offset) >= min(covered)
            for offset, kind in said.items() if in_flight else ():
                known = self.known.get(offset)
                if known is None or known.member != member or known.moving_to is not None:
                    break
                if kind == AcknowledgeType.RENEW:
                    known.deadline_ms = self.now_ms + LOCK_MS
            assert not may or last not in covered or max(first, self.partition.start_offset) not in covered
            return
        assert may
        pending = Pending(change)
        for offset, kind in said.items():
            known = self.known.get(offset)
            if known is None:
                continue
            if kind == AcknowledgeType.RENEW:
                known.deadline_ms = self.now_ms + LOCK_MS
                continue
            target = {1: RecordState.ACKNOWLEDGED, 2: RecordState.AVAILABLE}.get(kind, RecordState.ARCHIVED)
            if kind == AcknowledgeType.REJECT or (target is RecordState.AVAILABLE and known.count >= LIMIT):
                target = self.terms.archived
            known.moving_to = target
            pending.offsets.append(offset)
        self.check_stored(change, {each: self.known[each].moving_to for each in pending.offsets})
        self.pending.append(pending)

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        change = at_once(self.partition.release(member, self.terms))
        pending = Pending(change)
        for offset, known in self.known.items():
            if known.member == member and known.moving_to is None:
                known.moving_to = self.terms.archived if known.count >= LIMIT else RecordState.AVAILABLE
                pending.offsets.append(offset)
        self.check_stored(change, {each: self.known[each].moving_to for each in pending.offsets})
        self.pending.append(pending)

    def check_stored(self, change: Change, moved: dict[int, RecordState | None]) -> None:
        stored = {
            offset: (RecordState(it.state), it.delivery_count)
            for it in change.stored
            for offset in range(it.first_offset, it.last_offset + 1)
        }
        assert stored == {offset: (state, self.known[offset].count) for offset, state in moved.items()}

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), stored=st.booleans())
    def answer_of_the_store(self, data: st.DataObject, stored: bool) -> None:
        pending = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        at_once(self.partition.finish(pending.change, self.terms, self.now_ms, stored=stored))
        for offset in pending.offsets:
            known = self.known.get(offset)
            if known is None:
                continue
            assert known.moving_to is not None
            if stored:
                self.known[offset] = self.let_go(known.moving_to, known.count)
            elif known.has_expired:
                self.release_one(offset)
            else:
                known.moving_to = None

    @rule(passed_ms=st.integers(1, 2 * LOCK_MS))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        deadlines = [it.deadline_ms for it in self.known.values() if it.state is RecordState.ACQUIRED]
        due = [it for it in deadlines if it <= self.now_ms]
        next_ms = self.partition.next_deadline_ms()
        if any(it.deadline_ms <= self.now_ms for it in self.known.values() if it.member and it.moving_to is None):
            assert next_ms is not None and next_ms <= self.now_ms
        expired = at_once(self.partition.expire(self.now_ms, self.terms))
        released: dict[int, RecordState | None] = {}
        for offset, known in self.known.items():
            if known.state is RecordState.ACQUIRED and known.deadline_ms <= self.now_ms:
                if known.moving_to is not None:
                    known.has_expired = True
                else:
                    state = self.release_one(offset)
                    if known.member:
                        released[offset] = state
                    else:
                        self.known[offset] = Known(RecordState.AVAILABLE, known.count)
        assert due or not released
        self.check_stored(expired, released)

    def release_one(self, offset: int) -> RecordState:
        """The state that is stored."""
        count = self.known[offset].count
        state = self.terms.archived if count >= LIMIT else RecordState.AVAILABLE
        self.known[offset] = self.let_go(state, count)
        return state

    def let_go(self, state: RecordState, count: int) -> Known:
        wait_ms = self.terms.backoff_after_ms(count)
        if state is RecordState.AVAILABLE and wait_ms:
            return Known(RecordState.ACQUIRED, count, "", self.now_ms + wait_ms)
        return Known(state, count)

    @precondition(lambda self: self.terms.has_dead_letters)
    @rule(most=st.integers(1, 4))
    def copy_dead_letters(self, most: int) -> None:
        copied = self.partition.next_dead_letters(most, self.terms)
        waiting = [each for each, it in self.known.items() if it.state is RecordState.ARCHIVING and not it.moving_to]
        offsets = [each for it in copied for each in range(it.first_offset, it.last_offset + 1)]
        assert set(offsets) <= set(waiting)
        assert len(offsets) <= most
        assert bool(offsets) == bool(waiting), f"{waiting} are forgotten"
        pending = Pending(self.partition.archive(copied), offsets)
        for offset in offsets:
            self.known[offset].moving_to = RecordState.ARCHIVED
        self.pending.append(pending)

    # -- checks

    def covered(self) -> set[int]:
        return {each for first, last, _, _ in self.partition.spans() for each in range(first, last + 1)}

    def forget_before(self, offset: int) -> None:
        for each in [it for it in self.known if it < offset]:
            del self.known[each]

    @invariant()
    def states_agree(self) -> None:
        partition = self.partition
        assert partition.start_offset >= self.start_seen, "the start offset never moves back"
        for offset in range(self.start_seen, partition.start_offset):
            known = self.known.get(offset)
            gone = known is None or known.state.is_terminal or offset < self.log_start
            assert gone or offset not in self.in_log(), f"offset {offset} was skipped"
        self.start_seen = partition.start_offset
        self.forget_before(partition.start_offset)
        seen = set()
        for first, last, state, count in partition.spans():
            assert first <= last
            for offset in range(first, last + 1):
                assert offset not in seen
                seen.add(offset)
                known = self.known[offset]
                assert (known.state, known.count) == (state, count), f"offset {offset}"
        for offset in set(self.known) - seen:
            # Offsets between batches have no records.
            assert offset not in self.in_log() or offset >= partition.end_offset, f"offset {offset} was lost"
        assert partition.end_offset >= partition.start_offset

    @invariant()
    def counts_agree(self) -> None:
        covered = self.covered()
        complete = sum(
            1 for offset, it in self.known.items() if offset in covered and (it.moving_to or it.state).is_terminal
        )
        assert self.partition.delivery_complete_count == complete

    @invariant()
    def the_next_fetch_offset_is_the_first_available(self) -> None:
        available = [first for first, _, state, _ in self.partition.spans() if state is RecordState.AVAILABLE]
        assert self.partition.next_fetch_offset() == min(available, default=self.partition.end_offset)

    def in_log(self) -> set[int]:
        return {each for it in self.log for each in range(it.first_offset, it.last_offset + 1)}

    def teardown(self) -> None:
        """Whatever happened: at last all records are delivered, and nothing stays in flight."""
        for pending in self.pending:
            at_once(self.partition.finish(pending.change, self.terms, self.now_ms, stored=True))
        end = max((it.last_offset + 1 for it in self.log), default=self.log_end)
        for _ in range(200):
            self.now_ms += LOCK_MS
            at_once(self.partition.expire(self.now_ms, self.terms))
            offset = self.partition.next_fetch_offset()
            wanted = Wanted("last", 8, 8, False, LIMIT, MAX_LOCKS)
            acquired = self.partition.acquire(wanted, self.fetched(offset), offset, self.now_ms, LOCK_MS)
            for it in acquired:
                accepted = [Acknowledgement(it.first_offset, it.last_offset, [1])]
                change = at_once(self.partition.acknowledge("last", accepted, self.now_ms, self.terms))
                at_once(self.partition.finish(change, self.terms, self.now_ms, stored=True))
            while copied := self.partition.next_dead_letters(5, self.terms):
                at_once(self.partition.finish(self.partition.archive(copied), self.terms, self.now_ms, stored=True))
            if self.partition.start_offset >= end:
                return
        raise AssertionError(f"records from {self.partition.start_offset} on are never delivered")


ShareMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestShareMachine = pytest.mark.feature("CG-17")(ShareMachine.TestCase)


class BackoffMachine(ShareMachine):
    terms = Terms(LOCK_MS, LIMIT, MAX_LOCKS, may_renew=True, backoff_ms=70, backoff_max_ms=130)


class DeadLetterMachine(ShareMachine):
    terms = Terms(
        LOCK_MS, LIMIT, MAX_LOCKS, may_renew=True, backoff_ms=1, backoff_max_ms=1_000, has_dead_letters=True
    )


BackoffMachine.TestCase.settings = DeadLetterMachine.TestCase.settings = ShareMachine.TestCase.settings
TestBackoffMachine = pytest.mark.feature("CG-17", "CG-23")(BackoffMachine.TestCase)
TestDeadLetterMachine = pytest.mark.feature("CG-17", "CG-23")(DeadLetterMachine.TestCase)
