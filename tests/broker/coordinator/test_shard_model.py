"""Random lives of two coordinated partitions, step by step beside a plain model of what clients must get and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.coordinator.coordinator import (
    LONGEST_KEY,
    CoordinatedKind,
    CoordinatedTopic,
    Coordinator,
    partition_for,
    work_of_key,
)
from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, ProducerStamp, Reply
from barnabas.broker.coordinator.shard import (
    ANSWERS_IN_ONE_STEP,
    RETRY_MS,
    Shard,
    ShardContext,
    ShardState,
    coordinator_error,
)
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.replication.partition import Partition
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.kraft.metadata.delta import MetadataDelta, TopicDelta
from barnabas.kraft.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage, TopicsImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import group_log
from barnabas.protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.records.batch import CorruptBatch, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, read_end_txn
from barnabas.protocol.records.coordinator import encode_key
from barnabas.protocol.records.record import Record, decode_records
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import DecisionKind, Decisions, Note
from barnabas.runtime.late import Late
from barnabas.runtime.simulated import Universe, run_simulation
from barnabas.storage.producers import Warrant
from tests.broker.coordinator.stage import Hands, StagedPartition
from tests.broker.coordinator.test_coordinator import TOPIC, Counter
from tests.examples import examples

COMMIT_TIMEOUT_MS = 700
TOPIC_ID = bytes(15) + b"\x01"
TOPIC_IMAGE = TopicImage(TOPIC, TOPIC_ID, {place: PartitionImage((1,), (bytes(16),), (1,)) for place in (0, 1)})
IMAGE = MetadataImage(topics=TopicsImage({TOPIC: TOPIC_IMAGE}))
CHANGED = MetadataDelta(EMPTY_IMAGE, IMAGE, {TOPIC_ID: TopicDelta(TOPIC_ID, TOPIC, None, TOPIC_IMAGE)})
UNCHANGED = MetadataDelta(IMAGE, IMAGE, {})
CODES = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Errors of an append, and what clients get."""


class Machine(Counter):
    """Counts, and writes a record when it is loaded."""

    breaks_when_loaded = False

    def loaded(self, now: Now) -> Outcome:
        if self.breaks_when_loaded:
            raise RuntimeError("a mistake in the machine")
        return Outcome([record_of("loaded")])

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        super().metadata_changed(delta, now)
        if self.changes == 2:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return Outcome([record_of("changed")])

    def give_up(self) -> list[Reply]:
        waiting, self.waiting = self.waiting, []
        return waiting


def record_of(name: str) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=name, topic="t"), OffsetCommitValue(metadata=""), 3)


@dataclass
class Counts:
    """Knowledge of a machine."""

    counts: dict[str, int] = field(default_factory=dict)
    pending: dict[int, list[str]] = field(default_factory=dict)

    def take(self, names: list[str], producer: int | None) -> None:
        for name in names:
            if producer is None:
                self.counts[name] = self.counts.get(name, 0) + 1
            else:
                self.pending.setdefault(producer, []).append(name)

    def end(self, producer: int, committed: bool) -> None:
        names = self.pending.pop(producer, [])
        self.take(names if committed else [], None)

    def read(self, partition: StagedPartition) -> Counts:
        for _, batch in partition.log.held:
            header = read_header(batch, 0)
            marker = read_end_txn(batch, 0) if header.is_control else None
            if marker is not None:
                self.end(header.producer_id, marker.committed)
            else:
                names = [bytes(it.key or b"")[4:].split(b"\0")[0].decode() for it in decode_records(batch)]
                known = [name for name in names if name not in ("", "newer")]
                self.take(known, header.producer_id if header.is_transactional else None)
        return self


@dataclass
class Waits:
    """Callbacks for replication up to `offset`, for the deadline, and for an error."""

    offset: int
    settle: Callable[[ErrorCode | None], None]
    deadline_ms: int | None = None
    of_client: bool = True


@dataclass(eq=False)
class Due:
    """A timer: writes one record and answers `name`."""

    at_ms: int
    name: str
    handles: bool
    """The failure to write."""
    again: bool
    """It schedules itself before it fails."""


@dataclass
class Model:
    """One shard."""

    life: Life
    partition: StagedPartition
    shard: Shard[Machine]
    state: ShardState = ShardState.LOADING
    known: Counts = field(default_factory=Counts)
    waiting: list[Waits] = field(default_factory=list)
    timers: dict[str, Due] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    changes: int = 0
    began_ms: int = 0

    def refusal(self) -> ErrorCode | None:
        """To clients, at once."""
        if self.partition.is_forgotten:
            return ErrorCode.NOT_COORDINATOR
        if self.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return None if self.state is ShardState.ACTIVE else ErrorCode.NOT_COORDINATOR

    def answers(
        self, values: list[tuple[str, Any]], refusal: ErrorCode | None = None, end_offset: int | None = None
    ) -> None:
        """Each value, or the refusal, when all that is written is replicated."""

        def settle(error: ErrorCode | None) -> None:
            code = refusal if error is None else coordinator_error(error)
            self.life.sends([(name, value if code is None else code) for name, value in values])

        log = self.partition.log
        if self.partition.is_forgotten:
            settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif log.high_watermark >= (offset := log.log_end_offset if end_offset is None else end_offset):
            settle(None)
        else:
            deadline_ms = self.life.hands.ms + COMMIT_TIMEOUT_MS
            self.waiting.append(Waits(offset, settle, deadline_ms))

    def writes(self, names: list[str], producer: int | None = None, *, replay: bool = True) -> None:
        """Its records were appended."""
        if replay:
            self.known.take(names, producer)

    def promises(self, event: Any) -> None:
        """To be seen when all that is written is replicated."""

        def settle(error: ErrorCode | None) -> None:
            if error in (None, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND) and self.state is ShardState.ACTIVE:
                self.life.expected.append(event)

        log = self.partition.log
        if log.high_watermark >= log.log_end_offset:
            settle(self.partition.ack_error)
        else:
            self.waiting.append(Waits(log.log_end_offset, settle, of_client=False))

    def replicated(self, error: ErrorCode | None) -> None:
        while self.waiting and self.waiting[0].offset <= self.partition.log.high_watermark:
            self.waiting.pop(0).settle(error)

    def fails_acks(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def is_given_up(self) -> None:
        if self.state is ShardState.GONE:
            return
        self.state = ShardState.GONE
        self.timers = {}
        kept, self.kept = self.kept, []
        self.life.sends([(name, ErrorCode.NOT_COORDINATOR) for name in kept])
        self.fails_acks()


class Life:
    """The coordinator under test, and what is expected of it."""

    def __init__(self, nursery: trio.Nursery, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.hands = Hands(stretch_bytes=draw(st.sampled_from([1, 150, 1_000])))
        self.wheel = TimingWheel(self.hands.ms)
        self.background = Background(nursery)
        self.partitions = [StagedPartition(TOPIC, 0), StagedPartition(TOPIC, 1)]
        self.happened: list[Any] = []
        self.expected: list[Any] = []
        self.sending: list[tuple[int, list[tuple[str, Any]]]] = []
        self.models: dict[int, Model] = {}
        self.last: list[Model | None] = [None, None]
        """The latest shard of each partition, in use or not."""
        self.forgotten: dict[int, StagedPartition] = {}
        self.stopped = False
        self.failures = self.loads = 0
        """Unexpected exceptions while loading."""
        self.ends = [0, 0]
        """Records of both logs, while timers fire."""
        self.number = 0
        self.notes: dict[str, Note] = {}
        """The last of each shard itself."""
        self.decisions = Decisions("broker-1", self.hands.wall_clock.now_ms)
        self.decisions.keep = self._keep  # type: ignore[method-assign]
        topic = CoordinatedTopic(TOPIC, lambda: COMMIT_TIMEOUT_MS, lambda: draw(st.sampled_from([0, 1])))
        self.coordinator: Coordinator[Machine] = Coordinator(
            topic,
            self.hands,  # type: ignore[arg-type]
            self.background,
            self.wheel,
            lambda: IMAGE,
            Late.made(CoordinatedKind(group_log, self.machine)),
            decisions=self.decisions,
        )

    def machine(self, partition: Partition, timers: ShardTimers) -> Machine:
        machine = Machine(timers)
        machine.breaks_when_loaded = self.draw(st.integers(0, 7)) == 0
        return machine

    def _keep(self, note: Note) -> None:
        if note.kind is DecisionKind.REBALANCE:
            self.happened.append(("note", note.subject))
        else:
            self.notes[note.subject] = note

    # -- answers

    def name(self) -> str:
        self.number += 1
        return f"request {self.number}"

    def reply(self, name: str) -> Reply:
        def answer(value: Any) -> None:
            self.happened.append((name, value))

        return Reply(answer, answer)

    def sends(self, answers: list[tuple[str, Any]]) -> None:
        first, rest = answers[:ANSWERS_IN_ONE_STEP], answers[ANSWERS_IN_ONE_STEP:]
        self.expected += first
        if rest:
            self.sending.append((self.hands.ms + 1, rest))

    def check(self, *, in_order: bool = True) -> None:
        happened, self.happened = self.happened, []
        expected, self.expected = self.expected, []
        if in_order:
            assert happened == expected
        else:
            assert sorted(map(repr, happened)) == sorted(map(repr, expected))
        usable = [model.shard for _, model in sorted(self.models.items()) if model.state is not ShardState.FAILED]
        assert self.coordinator.shards == usable
        deposed = {index for index, model in self.models.items() if model.partition.is_forgotten}
        for index in (0, 1):
            assert self.coordinator.may_have_lost(index) == (index in deposed or index in self.forgotten)
            model = self.models.get(index)
            code = ErrorCode.NOT_COORDINATOR if model is None else model.refusal()
            assert self.code_of(partial(self.coordinator.shard_at, index)) == code
        assert self.coordinator.may_be_deposed == bool(deposed or self.forgotten)
        for last in self.last:
            if last is not None and last.state is not ShardState.LOADING:
                self.check_shard(last)
        assert self.background.failures == self.failures

    def check_shard(self, model: Model) -> None:
        shard = model.shard
        assert shard.state is model.state
        if model.state is not ShardState.ACTIVE:
            return
        assert (shard.loaded_in_ms is None) == (model.state is not ShardState.ACTIVE)
        assert (shard.machine.counts, shard.machine.pending) == (model.known.counts, model.known.pending)
        assert shard.machine.changes == model.changes
        assert shard.epoch == shard.partition.leader_epoch
        for key in "xyz":
            due = model.timers.get(key)
            assert shard.machine.timers.deadline_ms(key) == (None if due is None else due.at_ms)

    def code_of(self, asked: Callable[[], Any]) -> ErrorCode | None:
        try:
            asked()
        except KafkaError as error:
            return error.code
        return None

    # -- what a step does

    def fails_to_write(self, model: Model) -> ErrorCode | None:
        """The error of an append, which may cost the partition."""
        partition = model.partition
        if partition.fails_appends is None:
            return None
        if partition.fails_over is not None:
            model.fails_acks()
            self.gives_up(model.partition.index)
        return CODES[partition.fails_appends]

    def gives_up(self, index: int) -> None:
        model = self.models.pop(index, None)
        if model is not None:
            model.is_given_up()

    def command(self, index: int) -> None:
        model = self.last[index]
        if model is None:
            return
        how = self.draw(st.sampled_from(["write", "refuse", "keep", "many", "look", "now", "settled", "txn", "end"]))
        getattr(self, f"does_{how}")(model, self.name())

    def does_write(self, model: Model, name: str) -> None:
        """A command that writes, with all that an outcome may have."""
        names = self.draw(st.lists(st.sampled_from("abc"), max_size=3))
        replay, handles = self.draw(st.booleans()), self.draw(st.booleans())
        asked = self.reply(name)
        outcome = Outcome([record_of(each) for each in names], [(asked, "done")], replay=replay)
        outcome.committed = lambda: self.happened.append(("committed", name))
        outcome.notes.note(DecisionKind.REBALANCE, name, "it writes")
        if handles:
            outcome.failed = lambda error: Outcome(answers=[(asked, ("handled", error.code))])
        refusal = model.refusal()
        error = self.fails_to_write(model) if names and refusal is None else None
        model.shard.run(lambda now: outcome, asked)
        if refusal is not None:
            self.expected.append((name, refusal))
        elif error is None:
            model.writes(names, replay=replay)
            model.promises(("note", name))
            model.promises(("committed", name))
            model.answers([(name, "done")])
        elif handles and model.state is ShardState.ACTIVE:
            model.answers([(name, ("handled", error))])
        else:
            self.expected.append((name, error))

    def does_refuse(self, model: Model, name: str) -> None:
        """A command that the machine refuses."""
        code = self.draw(st.sampled_from([ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR]))

        def operation(now: Now) -> Outcome:
            raise KafkaError(code)

        refusal = model.refusal()
        model.shard.run(operation, self.reply(name))
        if refusal is not None or code is ErrorCode.NOT_COORDINATOR:
            self.expected.append((name, refusal or code))
        else:
            model.answers([(name, None)], refusal=code)

    def does_keep(self, model: Model, name: str) -> None:
        """A reply that the machine keeps."""
        asked = self.reply(name)
        refusal = model.refusal()
        model.shard.run(partial(model.shard.machine.wait, asked), asked)
        if refusal is None:
            model.kept.append(name)
        else:
            self.expected.append((name, refusal))

    def does_many(self, model: Model, name: str) -> None:
        """Answers to a group, sent in steps if it is large."""
        size = self.draw(st.sampled_from([ANSWERS_IN_ONE_STEP + more for more in (-1, 0, 1, 150)]))
        names = [f"{name} {number}" for number in range(size)]
        refusal = model.refusal()
        operation = partial(model.shard.machine.answer_all, [self.reply(each) for each in names])
        model.shard.run(operation, self.reply(name))
        if refusal is not None:
            self.expected.append((name, refusal))
        elif size <= ANSWERS_IN_ONE_STEP:
            for value, each in enumerate(names):
                model.answers([(each, value)])
        else:
            model.answers([(each, value) for value, each in enumerate(names)])

    def settles(self, model: Model, name: str, value: Any) -> None:
        model.shard.when_committed(lambda code: self.happened.append((name, code, value)))
        refusal = model.refusal()
        if refusal is not None:
            self.expected.append((name, refusal, value))
            return

        def settle(error: ErrorCode | None) -> None:
            self.expected.append((name, ErrorCode.NONE if error is None else coordinator_error(error), value))

        log = model.partition.log
        if not model.partition.is_leader:
            settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif log.high_watermark >= log.log_end_offset:
            settle(None)
        else:
            model.waiting.append(Waits(log.log_end_offset, settle, self.hands.ms + COMMIT_TIMEOUT_MS))

    def does_look(self, model: Model, name: str) -> None:
        operation = partial(model.shard.machine.look, "a", self.reply(name))
        refusal = model.refusal()
        assert self.code_of(lambda: model.shard.look(operation)) == refusal
        if refusal is None:
            assert model.shard.look(operation) == model.known.counts.get("a", 0)
            self.settles(model, name, model.known.counts.get("a", 0))

    def does_settled(self, model: Model, name: str) -> None:
        self.settles(model, name, None)

    def does_now(self, model: Model, name: str) -> None:
        """One of several commands of a request."""
        refusal = model.refusal()
        error = self.fails_to_write(model) if refusal is None else None
        outcome = Outcome([record_of("now")], [(self.reply(name), "now")])
        outcome.committed = lambda: self.happened.append(("committed", name))
        answers: list[Any] = []
        got = self.code_of(lambda: answers.append(model.shard.carry_out_now(lambda now: outcome)))
        assert got == (error if refusal is None else refusal)
        if got is None:
            assert answers == ["now"]
            model.writes(["now"])
            model.promises(("committed", name))
            self.settles(model, name, "now")

    def does_txn(self, model: Model, name: str) -> None:
        """Records of a transaction."""
        shard, refusal = model.shard, model.refusal()
        producer = ProducerStamp(self.draw(st.sampled_from([7, 8])), 3)
        begin = partial(shard.begin_verification, producer, supports_epoch_bump=self.draw(st.booleans()))
        assert self.code_of(begin) == refusal
        if refusal is not None:
            return
        error = self.fails_to_write(model)
        verification = begin() if model.state is ShardState.ACTIVE else None
        asked = self.reply(name)
        shard.run(partial(shard.machine.count_in, "t", asked, producer, verification), asked)
        if error is not None:
            self.expected.append((name, error if model.state is ShardState.ACTIVE else ErrorCode.NOT_COORDINATOR))
            return
        assert model.partition.admitted[-1] == Warrant(verification) and verification is not None
        header = read_header(model.partition.log.held[-1][1], 0)
        assert (header.producer_id, header.producer_epoch, header.is_transactional) == (*producer, True)
        value = model.known.counts.get("t", 0) + 1
        model.writes(["t"], producer.producer_id)
        model.answers([(name, value)])

    def does_end(self, model: Model, name: str) -> None:
        """A marker of a transaction."""
        producer, committed = self.draw(st.sampled_from([7, 8])), self.draw(st.booleans())
        refusal = model.refusal()
        error = refusal or self.fails_to_write(model)
        marker = EndTxn(committed, 4)
        version = self.draw(st.sampled_from([0, 2]))
        stamp = ProducerStamp(producer, 3)
        model.shard.end_transaction(stamp, marker, self.reply(name), "ended", transaction_version=version)
        if error is not None:
            code = error if refusal else model.partition.fails_appends or ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.expected.append((name, code))
            return
        header = read_header(model.partition.log.held[-1][1], 0)
        assert model.partition.admitted[-1] == Warrant(transaction_version=version)
        assert (header.producer_id, header.producer_epoch) == stamp
        assert header.max_timestamp == self.hands.wall_clock.now_ms()
        model.known.end(producer, committed)
        model.answers([(name, "ended")])

    # -- timers

    def timer(self, index: int) -> None:
        model = self.last[index]
        if model is None or model.state is not ShardState.ACTIVE:
            return
        key = self.draw(st.sampled_from("xyz"))
        timers = model.shard.machine.timers
        if self.draw(st.integers(0, 3)) == 0:
            timers.cancel(key)
            model.timers.pop(key, None)
            return
        at_ms = self.hands.ms + self.draw(st.integers(1, 900))
        due = Due(at_ms, self.name(), self.draw(st.booleans()), self.draw(st.booleans()))
        timers.schedule(key, at_ms, partial(self.fires, model, key, due))
        model.timers.pop(key, None)
        model.timers[key] = due

    def fires(self, model: Model, key: str, due: Due, now: Now) -> Outcome:
        assert now == Now(self.hands.ms, self.hands.wall_clock.now_ms())
        asked = self.reply(due.name)
        outcome = Outcome([record_of("timer")], [(asked, "timer")])
        if due.handles:
            outcome.failed = lambda error: Outcome(answers=[(asked, ("handled", error.code))])
        if due.again and model.partition.fails_appends is not None:
            again = partial(self.fires, model, key, due)
            model.shard.machine.timers.schedule(key, self.hands.ms + 50, again)
        return outcome

    def fired(self, model: Model, key: str) -> None:
        due = model.timers.pop(key)
        if due.again and model.partition.fails_appends is not None:
            model.timers[key] = Due(self.hands.ms + 50, due.name, due.handles, due.again)
        error = self.fails_to_write(model)
        if error is None:
            model.writes(["timer"])
            self.ends[model.partition.index] += 1
            model.answers([(due.name, "timer")], end_offset=self.ends[model.partition.index])
        elif model.state is not ShardState.ACTIVE:
            self.expected.append((due.name, ErrorCode.NOT_COORDINATOR))
        elif due.handles:
            model.answers([(due.name, ("handled", error))])
        elif key not in model.timers:
            model.timers[key] = Due(self.hands.ms + RETRY_MS, due.name, due.handles, due.again)

    def advance(self) -> None:
        """Time passes, from one event to the next, with a look just before each."""
        end_ms = self.hands.ms + self.draw(st.sampled_from([1, 40, 300, 800]))
        while self.hands.ms < end_ms:
            next_ms = min((at_ms for at_ms in self.event_times() if at_ms > self.hands.ms), default=end_ms)
            next_ms = min(next_ms, end_ms)
            for now_ms in sorted({next_ms - 1, next_ms} - {self.hands.ms}):
                self.hands.ms = now_ms
                self.ends = [each.log.log_end_offset for each in self.partitions]
                self.wheel.advance(self.hands.ms)
                self.due_now()
                self.check(in_order=False)

    def event_times(self) -> list[int]:
        times = [at_ms for at_ms, _ in self.sending]
        for model in self.all_models():
            times += [due.at_ms for due in model.timers.values()]
            times += [each.deadline_ms for each in model.waiting if each.deadline_ms is not None]
        return times

    def all_models(self) -> list[Model]:
        return [model for model in self.last if model is not None]

    def due_now(self) -> None:
        now_ms = self.hands.ms
        for model in self.all_models():
            late = [each for each in model.waiting if each.deadline_ms is not None and each.deadline_ms <= now_ms]
            model.waiting = [each for each in model.waiting if each not in late]
            for each in late:
                each.settle(ErrorCode.REQUEST_TIMED_OUT)
            for key, due in sorted(model.timers.items(), key=lambda item: item[1].at_ms):
                if due.at_ms <= now_ms and model.timers.get(key) is due:
                    self.fired(model, key)
        ready = [rest for at_ms, rest in self.sending if at_ms <= now_ms]
        self.sending = [each for each in self.sending if each[0] > now_ms]
        for rest in ready:
            self.sends(rest)

    # -- the partition

    def replicate(self, index: int) -> None:
        partition = self.partitions[index]
        partition.isr_is_small = self.draw(st.integers(0, 3)) == 0
        partition.replicate(partition.log.high_watermark + self.draw(st.integers(0, 4)))
        model = self.last[index]
        if model is not None:
            model.replicated(partition.ack_error)

    def disk(self, index: int) -> None:
        """Appends fail, or work again."""
        partition = self.partitions[index]
        partition.fails_appends = self.draw(st.none() | st.sampled_from(list(CODES)))
        partition.fails_over = None
        if partition.fails_appends is ErrorCode.KAFKA_STORAGE_ERROR and self.draw(st.booleans()):
            partition.fails_over = partial(self.falls_over, partition)

    def falls_over(self, partition: StagedPartition) -> None:
        partition.moves_away()
        partition.fail_acks()
        self.coordinator.leadership_changed(partition)  # type: ignore[arg-type]

    def leads(self, index: int) -> None:
        """This broker becomes the leader, or stays it in a new epoch."""
        partition = self.partitions[index]
        if self.draw(st.integers(0, 4)) == 0:
            partition = self.partitions[index] = partition.opened_again()
            if not self.stopped:
                self.gives_up(index)
        before = self.models.get(index)
        if before is None and self.draw(st.booleans()):
            keep = self.draw(st.integers(1, 7))
            partition.log.compact(lambda place: bool(keep >> place % 3 & 1))
            if self.draw(st.booleans()):
                partition.log.delete_front()
            partition.log.write(bytearray(build_batch([Record(0, 1, self.unknown_key(), b"")])))
        if before is None and partition.log.log_end_offset and self.draw(st.integers(0, 5)) == 0:
            partition.log.damage = self.draw(st.sampled_from([CorruptBatch("torn"), RuntimeError("a mistake"), None]))
        partition.is_leader, partition.fails_appends, partition.fails_over = True, None, None
        partition.leader_epoch += 1
        self.coordinator.leadership_changed(partition)  # type: ignore[arg-type]
        if not self.stopped:
            self.forgotten.pop(index, None)
            self.led(index)

    def unknown_key(self) -> bytes | None:
        """A record of a newer version, or of nobody."""
        newer = b"\x00\x63" + encode_key(OffsetCommitKey(group="newer"))[2:]
        chosen: bytes | None = self.draw(st.sampled_from([newer, None]))
        return chosen

    def led(self, index: int) -> None:
        model = self.models.get(index)
        if model is not None and model.state is not ShardState.FAILED:
            return
        shard = self.coordinator._shards[index]
        self.models[index] = self.last[index] = Model(self, self.partitions[index], shard, began_ms=self.hands.ms)

    def loses(self, index: int) -> None:
        partition, model = self.partitions[index], self.models.get(index)
        acks_first = self.draw(st.booleans())
        partition.moves_away()
        if acks_first:
            partition.fail_acks()
            for each in self.all_models():
                if each.partition is partition:
                    each.fails_acks()
        if model is not None:
            # The coordinator does not know yet.
            self.settles(model, self.name(), "asked meanwhile")
        self.coordinator.leadership_changed(partition)  # type: ignore[arg-type]
        partition.fail_acks()
        if not self.stopped:
            self.forgotten.pop(index, None)
            self.gives_up(index)
        assert model is None or self.stopped or model.state is ShardState.GONE

    def forget(self, index: int) -> None:
        """Contact with controllers and followers is lost, or is there again; then someone looks."""
        partition = self.partitions[index]
        partition.is_forgotten = self.draw(st.booleans())
        if self.draw(st.booleans()):
            return
        self.coordinator.check_forgotten()
        for place, model in list(self.models.items()):
            if model.partition.is_forgotten:
                self.gives_up(place)
                self.forgotten[place] = model.partition
        for place, lost in list(self.forgotten.items()):
            if not lost.is_forgotten:
                del self.forgotten[place]
                if lost.is_leader:
                    self.led(place)

    def metadata(self, index: int) -> None:
        delta = self.draw(st.sampled_from([CHANGED, UNCHANGED]))
        self.coordinator.metadata_changed(delta)
        for _, model in sorted(self.models.items()):
            if delta is CHANGED and model.state is ShardState.ACTIVE:
                model.changes += 1
                if model.changes != 2 and self.fails_to_write(model) is None:
                    model.writes(["changed"])

    def other_topic(self, index: int) -> None:
        other = StagedPartition("another", index, is_leader=True)
        self.coordinator.leadership_changed(other)  # type: ignore[arg-type]

    def stop(self, index: int) -> None:
        if self.draw(st.integers(0, 5)) == 0:
            self.coordinator.stop()
            for place in list(self.models):
                self.gives_up(place)
            self.forgotten.clear()
            self.stopped = True

    # -- loading

    async def load(self, *, to_the_end: bool) -> None:
        loading = [model for model in self.models.values() if model.state is ShardState.LOADING]
        for _ in range(200 if to_the_end else 2):  # by the second even a task of just now has begun
            await trio.lowlevel.checkpoint()
            if all(model.shard.state is not ShardState.LOADING for model in loading):
                break
        for model in loading:
            if model.shard.state is ShardState.LOADING:
                assert not to_the_end
                continue
            log = model.partition.log
            model.state = ShardState.ACTIVE if log.damage is None else ShardState.FAILED
            self.check_stretches(model, log.stretches)
            log.stretches.clear()
            machine = model.shard.machine
            breaks = machine.breaks_when_loaded if log.damage is None else isinstance(log.damage, RuntimeError)
            self.failures += breaks
            log.damage = None
            if model.state is ShardState.ACTIVE:
                model.known = Counts().read(model.partition)
                self.check_note(model)
                self.loads += 1
                if not breaks:
                    self.fails_to_write(model)
            else:
                assert self.notes[model.partition.name].kind is DecisionKind.LOG

        assert self.hands.passed.count("coordinator.loaded") == self.loads

    def check_note(self, model: Model) -> None:
        note, partition = self.notes[model.partition.name], model.partition
        took_ms = self.hands.ms - model.began_ms
        assert model.shard.loaded_in_ms == took_ms
        end_offset = partition.log.log_end_offset - (
            partition.fails_appends is None and not model.shard.machine.breaks_when_loaded
        )
        count = end_offset - partition.log.log_start_offset
        assert note.cause.endswith(f"has loaded its {count} offsets in {took_ms} ms")
        assert note.text == f"broker-1 coordinates {partition.name} in epoch {model.shard.epoch}"
        assert dict(note.facts) == {"leader_epoch": model.shard.epoch, "offset": end_offset}

    def check_stretches(self, model: Model, stretches: list[int]) -> None:
        if self.hands.stretch_bytes == 1:
            assert max(stretches, default=0) <= 1, "it pauses after each batch"


OFTEN = ["command", "command", "timer", "advance"]
SOMETIMES = ["replicate", "disk", "leads", "loses", "forget", "metadata", "other_topic", "stop"]
"""A life has some of them only, so that it comes to each often enough."""


async def live(_: Universe, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    async with trio.open_nursery() as nursery:
        life = Life(nursery, draw)
        for index in (0, 1):
            life.leads(index)
        steps = [*OFTEN, *draw(st.lists(st.sampled_from(SOMETIMES), min_size=2, max_size=4))]
        for _step in range(draw(st.integers(5, 40))):
            await life.load(to_the_end=draw(st.integers(0, 3)) > 0)
            step = getattr(life, draw(st.sampled_from(steps)))
            if step == life.advance:
                step()
            else:
                step(draw(st.sampled_from([0, 0, 1])))
            life.check()
        await life.load(to_the_end=True)
        life.check()


@pytest.mark.feature("CG-12", "CG-03", "TX-01")
@settings(max_examples=examples(150))
@given(st.data())
def test_random_lives(data: st.DataObject) -> None:
    run_simulation(1, live, data.draw)


def image_with(partitions: int | None) -> MetadataImage:
    if partitions is None:
        return EMPTY_IMAGE
    led = {place: PartitionImage((1,), (bytes(16),), (1,), leader=place) for place in range(partitions)}
    return MetadataImage(topics=TopicsImage({TOPIC: TopicImage(TOPIC, TOPIC_ID, led)}))


@pytest.mark.feature("CG-02")
@pytest.mark.parametrize("partitions", [None, 0, 1, 7])
def test_the_partition_of_a_key(partitions: int | None) -> None:
    hands = Hands()
    coordinator: Coordinator[Machine] = Coordinator(
        CoordinatedTopic(TOPIC, lambda: COMMIT_TIMEOUT_MS),
        hands,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        TimingWheel(0),
        lambda: image_with(partitions),
        Late.made(CoordinatedKind(group_log, lambda partition, timers: Machine(timers))),
    )
    for key in ("", "readers", "x" * 256, "x" * 257, "y" * LONGEST_KEY):
        expected = partition_for(key, partitions) if partitions else None
        assert coordinator.partition_of(key) == expected
        placed = coordinator.placed(key)
        assert (None if placed is None else placed.leader) == expected
        with pytest.raises(KafkaError) as refused:
            coordinator.shard(key)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError) as too_long:
        coordinator.partition_of("x" * (LONGEST_KEY + 1))
    assert too_long.value.code is ErrorCode.INVALID_REQUEST
    assert [work_of_key("x" * length) for length in (0, 99, 100, 250)] == [0, 0, 1, 2]


@pytest.mark.feature("OB-02")
def test_a_refused_event_is_logged_without_the_whole_metadata(caplog: pytest.LogCaptureFixture) -> None:
    hands, timers = Hands(), ShardTimers(TimingWheel(0))
    partition = StagedPartition(TOPIC, 0, is_leader=True)
    context = ShardContext(hands, {}, COMMIT_TIMEOUT_MS, 0, None)  # type: ignore[arg-type]
    shard = Shard(context, partition, Machine(timers), timers)  # type: ignore[arg-type]
    shard.run(partial(shard.machine.metadata_changed, CHANGED), None)
    assert "metadata_changed: COORDINATOR_LOAD_IN_PROGRESS" in caplog.text and "TopicImage" not in caplog.text
    assert not partition.log.held
