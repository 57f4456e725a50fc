"""The share coordinator and the leaders of share partitions against a dictionary of offsets, under random commands.

Two partitions, each with one leader at a time and others that were deposed. Leaders deliver, acknowledge and store; the
coordinator answers, writes snapshots, deletes old records, and is loaded again from its log. The model knows the state
of each offset that was stored, and nothing of batches, snapshots and updates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Operation, Outcome, Reply
from barnabas.broker.fetch_context import at_once
from barnabas.broker.shares.acquisition import Wanted
from barnabas.broker.shares.in_flight import OffsetRange
from barnabas.broker.shares.record_state import RecordState
from barnabas.broker.shares.share_partition import Acknowledgement, SharePartition, Terms
from barnabas.broker.shares.state import (
    UNINITIALIZED_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareStateChange,
    ShareStateSummary,
    StateBatch,
)
from barnabas.broker.shares.state_machine import ShareStateContext, ShareStateMachine
from barnabas.protocol.errors import ErrorCode, KafkaError

TOPICS = (b"orders".ljust(16), b"bills".ljust(16))
KEYS = tuple(SharePartitionKey("work", topic_id, 0) for topic_id in TOPICS)
UPDATES = 3
"""Updates between two snapshots."""
COLD_MS, PRUNE_MS = 1_000, 700
LIMIT, LOCK_MS = 3, 100
TERMS = Terms(LOCK_MS, LIMIT, 50, may_renew=True)
STATES = st.sampled_from([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED])
KEY = st.sampled_from(KEYS)


class Cell(NamedTuple):
    """The stored state of an offset; the greater one wins."""

    count: int
    state: int


@dataclass
class Known:
    """The state of a share partition by the model."""

    state_epoch: int
    start_offset: int
    leader_epoch: int = 0
    complete: int = -1
    cells: dict[int, Cell] = field(default_factory=dict)

    def write(self, change: ShareStateChange) -> None:
        if change.start_offset != UNINITIALIZED_OFFSET:
            self.start_offset = change.start_offset
        self.complete = change.delivery_complete_count
        for batch in change.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                cell = Cell(batch.delivery_count, batch.state)
                self.cells[offset] = max(cell, self.cells.get(offset, cell))
        if self.start_offset != UNINITIALIZED_OFFSET:
            self.cells = {offset: cell for offset, cell in self.cells.items() if offset >= self.start_offset}


class FakeTimers:
    def __init__(self) -> None:
        self.due: dict[Hashable, tuple[int, Operation]] = {}

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        self.due[key] = deadline_ms, operation

    def cancel(self, key: Hashable) -> None:
        self.due.pop(key, None)

    def deadline_ms(self, key: Hashable) -> int | None:
        return self.due[key][0] if key in self.due else None


@dataclass
class Leader:
    """A leader of a partition, maybe deposed."""

    key: SharePartitionKey
    epoch: int
    core: SharePartition


class CoordinatorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.topics = set(TOPICS)
        self.log: list[tuple[int, CoordinatorRecord]] = []
        self.end = 0
        self.known: dict[SharePartitionKey, Known] = {}
        self.epochs = dict.fromkeys(KEYS, 0)
        """The newest leader epoch of each partition."""
        self.fences: dict[SharePartitionKey, tuple[int, int]] = {}
        """Newest leader and state epoch that the coordinator has seen."""
        self.leaders: dict[SharePartitionKey, Leader] = {}
        self.deposed: list[Leader] = []
        self.timers = FakeTimers()
        self.machine = self.load()

    # -- the coordinator

    def load(self) -> ShareStateMachine:
        """A machine that has read the log."""
        self.timers = FakeTimers()
        machine = ShareStateMachine(self.context())
        for offset, record in self.log:
            machine.replay(record.key, record.value, None, offset)
        self.carry_out(machine, machine.loaded(self.now))
        return machine

    def context(self) -> ShareStateContext:
        broker: Any = SimpleNamespace(
            share_coordinator_snapshot_update_records_per_snapshot=UPDATES,
            share_coordinator_cold_partition_snapshot_interval_ms=COLD_MS,
            share_coordinator_state_topic_prune_interval_ms=PRUNE_MS,
        )

        def image() -> Any:
            by_id = {topic_id: SimpleNamespace(partitions={0: None}) for topic_id in self.topics}
            return SimpleNamespace(topics=SimpleNamespace(by_id=by_id))

        return ShareStateContext(self.timers, lambda: broker, image, self.delete_before)

    def delete_before(self, offset: int) -> None:
        self.log = [entry for entry in self.log if entry[0] >= offset]

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def carry_out(self, machine: ShareStateMachine, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append((self.end, record))
            machine.replay(record.key, record.value, None, self.end)
            self.end += 1
        for reply, answer in outcome.answers:
            reply.answer(answer)
        if outcome.committed is not None:
            outcome.committed()

    def ask(self, operation: Callable[[Reply, Now], Outcome]) -> Any:
        """The answer. Raises KafkaError."""
        answers: list[Any] = []

        def refuse(code: ErrorCode) -> None:
            raise KafkaError(code)

        self.carry_out(self.machine, operation(Reply(answers.append, refuse), self.now))
        (answer,) = answers
        return answer

    @rule()
    def fail_over(self) -> None:
        """Another broker loads the log; what it has is what the one before had."""
        before = {key: (stored.state(), stored.summary()) for key, stored in self.machine._states.items()}
        self.machine = self.load()
        after = {key: (stored.state(), stored.summary()) for key, stored in self.machine._states.items()}
        assert after == {key: it for key, it in before.items() if key.topic_id in self.topics}

    @rule(passed_ms=st.integers(1, 900))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for key, (deadline_ms, operation) in list(self.timers.due.items()):
            if deadline_ms <= self.now_ms:
                del self.timers.due[key]
                self.carry_out(self.machine, operation(self.now))

    # -- the group coordinator

    @rule(key=KEY, state_epoch=st.integers(0, 3), start_offset=st.integers(-1, 5))
    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        _, newest = self.fences.get(key, (0, 0))
        try:
            self.ask(lambda reply, now: self.machine.initialize(key, state_epoch, start_offset, reply, now))
        except KafkaError as error:
            is_fenced = key in self.known and state_epoch < newest
            expected = ErrorCode.FENCED_STATE_EPOCH if is_fenced else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert error.code is expected
            assert is_fenced or key.topic_id not in self.topics
            return
        assert key.topic_id in self.topics
        complete = -1 if start_offset == UNINITIALIZED_OFFSET else 0
        self.known[key] = Known(state_epoch, start_offset, complete=complete)
        leader_epoch, _ = self.fences.get(key, (0, 0))
        self.fences[key] = leader_epoch, max(newest, state_epoch)

    @rule(key=KEY)
    def delete(self, key: SharePartitionKey) -> None:
        try:
            self.ask(lambda reply, now: self.machine.delete(key, reply, now))
        except KafkaError as error:
            assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and key.topic_id not in self.topics
            return
        self.known.pop(key, None)
        self.fences.pop(key, None)

    @precondition(lambda self: len(self.topics) == len(TOPICS))
    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        topic_id = data.draw(st.sampled_from(TOPICS))
        self.topics.remove(topic_id)
        deleted: Any = SimpleNamespace(deleted_topics={topic_id: None})
        self.carry_out(self.machine, self.machine.metadata_changed(deleted, self.now))
        for key in [it for it in self.known if it.topic_id == topic_id]:
            del self.known[key]
            del self.fences[key]

    @rule(key=KEY)
    def summarize(self, key: SharePartitionKey) -> None:
        try:
            answer = self.ask(lambda reply, now: self.machine.summary(key, reply, now))
        except KafkaError:
            assert key.topic_id not in self.topics
            return
        known = self.known.get(key)
        if known is None:
            assert answer == ShareStateSummary(0, 0, UNINITIALIZED_OFFSET)
        else:
            expected = ShareStateSummary(known.state_epoch, known.leader_epoch, known.start_offset, known.complete)
            assert answer == expected

    # -- leaders

    @rule(key=KEY)
    def elect(self, key: SharePartitionKey) -> None:
        """A new leader reads the state, and goes on from there."""
        self.epochs[key] += 1
        before = self.leaders.pop(key, None)
        if before is not None:
            self.deposed.append(before)
        try:
            state = self.read(key, self.epochs[key])
        except KafkaError as error:
            assert error.code is ErrorCode.INVALID_REQUEST and key not in self.known
            return
        start_offset = 0 if state.start_offset == UNINITIALIZED_OFFSET else state.start_offset
        core = SharePartition(state, start_offset)
        for first, last, each, count in core.spans():
            for offset in range(first, last + 1):
                cell = self.known[key].cells.get(offset, Cell(0, 0))
                assert (count, int(each)) == cell, f"offset {offset}"
        self.leaders[key] = Leader(key, self.epochs[key], core)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        state: ShareState = self.ask(lambda reply, now: self.machine.read(key, leader_epoch, reply, now))
        known = self.known[key]
        known.leader_epoch = leader_epoch
        newest, state_epoch = self.fences.get(key, (0, 0))
        self.fences[key] = max(newest, leader_epoch), state_epoch
        assert (state.state_epoch, state.start_offset) == (known.state_epoch, known.start_offset)
        return state

    @precondition(lambda self: self.leaders or self.deposed)
    @rule(
        data=st.data(),
        most=st.integers(1, 6),
        kinds=st.lists(st.sampled_from([1, 2, 3]), min_size=6, max_size=6),
        expires=st.booleans(),
    )
    def deliver(self, data: st.DataObject, most: int, kinds: list[int], expires: bool) -> None:
        """A leader, maybe one that does not know that it was deposed, delivers some records and stores their fate."""
        leader = data.draw(st.sampled_from([*self.leaders.values(), *self.deposed]))
        core = leader.core
        offset = core.next_fetch_offset()
        wanted = Wanted("member", most, 6, by_record=True, delivery_count_limit=LIMIT, max_record_locks=50)
        acquired = core.acquire(wanted, [OffsetRange(offset, offset + 5)], offset, self.now_ms, LOCK_MS)
        if expires:
            self.now_ms += LOCK_MS
            change = at_once(core.expire(self.now_ms, TERMS))
        else:
            said = [
                Acknowledgement(each, each, [kind])
                for it in acquired
                for each, kind in zip(range(it.first_offset, it.last_offset + 1), kinds, strict=False)
            ]
            change = at_once(core.acknowledge("member", said, self.now_ms, TERMS))
        batches = tuple(change.stored)
        state = ShareStateChange(
            core.state_epoch, leader.epoch, core.start_offset, core.delivery_complete_count, batches
        )
        is_stored = self.store(leader, state)
        if not expires:
            at_once(core.finish(change, TERMS, self.now_ms, stored=is_stored))

    def store(self, leader: Leader, change: ShareStateChange) -> bool:
        key = leader.key
        newest_leader, newest_state = self.fences.get(key, (0, 0))
        try:
            self.ask(lambda reply, now: self.machine.write(key, change, reply, now))
        except KafkaError as error:
            if key not in self.known:
                assert error.code is ErrorCode.INVALID_REQUEST
            elif leader.epoch < newest_leader:
                assert error.code is ErrorCode.FENCED_LEADER_EPOCH
            else:
                assert error.code is ErrorCode.FENCED_STATE_EPOCH and change.state_epoch < newest_state
            self.leaders.pop(key, None) if self.leaders.get(key) is leader else None
            self.deposed = [it for it in self.deposed if it is not leader]
            return False
        assert key in self.known and leader.epoch >= newest_leader and change.state_epoch >= newest_state
        self.known[key].write(change)
        return True

    @rule(key=KEY, first=st.integers(0, 12), size=st.integers(1, 5), count=st.integers(0, 3), state=STATES)
    def write_anything(self, key: SharePartitionKey, first: int, size: int, count: int, state: RecordState) -> None:
        """A leader of whatever implementation: batches overlap and come in any order."""
        known = self.known.get(key)
        if known is None:
            return
        batches = (StateBatch(first, first + size - 1, int(state), count),)
        change = ShareStateChange(known.state_epoch, -1, known.start_offset, 7, batches)
        newest_state = self.fences[key][1]
        if known.state_epoch < newest_state:
            return
        self.ask(lambda reply, now: self.machine.write(key, change, reply, now))
        known.write(change)
        # Its leader knows nothing of that.
        self.leaders.pop(key, None)
        self.deposed = [it for it in self.deposed if it.key != key]

    # -- checks

    @invariant()
    def live_state_is_that_of_the_model(self) -> None:
        assert set(self.machine.keys) == set(self.known)
        for key, known in self.known.items():
            stored = self.machine._states[key]
            cells = {}
            last = -1
            for batch in stored.batches:
                assert last < batch.first_offset <= batch.last_offset, "in order, without overlaps"
                last = batch.last_offset
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    cells[offset] = Cell(batch.delivery_count, batch.state)
            assert cells == known.cells
            assert stored.start_offset == known.start_offset

    @invariant()
    def replay_gives_the_live_state(self) -> None:
        machine = ShareStateMachine(replace(self.context(), timers=FakeTimers()))
        for offset, record in self.log:
            machine.replay(record.key, record.value, None, offset)
        live = {key: (stored.state(), stored.summary()) for key, stored in self.machine._states.items()}
        assert {key: (stored.state(), stored.summary()) for key, stored in machine._states.items()} == live
        assert {key: it.updates for key, it in machine._states.items()} == {
            key: it.updates for key, it in self.machine._states.items()
        }


CoordinatorMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCoordinatorMachine = pytest.mark.feature("CG-18")(CoordinatorMachine.TestCase)
