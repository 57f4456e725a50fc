"""Shell: one partition of an internal topic that is led here, and its state machine.

Loads the log into the machine, runs commands, appends the records that they decide, and sends answers once these are
replicated. A command's records are appended in the same step of the event loop as the decision, so the machine never
builds on a record that could still be refused. Knows neither groups nor transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from barnabas.broker.coordinator.outcome import (
    CoordinatorRecord,
    Machine,
    Now,
    Operation,
    Outcome,
    ProducerStamp,
    Reply,
)
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.purgatory import WaitingAck
from barnabas.broker.replication.partition import Partition
from barnabas.broker.timing_wheel import TimerEntry
from barnabas.protocol.errors import EncodeError, ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.records.batch import NO_SEQUENCE, CorruptBatch, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch, read_end_txn
from barnabas.protocol.records.coordinator import RecordType, decode_key, decode_versioned, encode_key, encode_versioned
from barnabas.protocol.records.record import Record, decode_records
from barnabas.runtime.decisions import DecisionKind, Decisions
from barnabas.runtime.world import World
from barnabas.storage.producers import Verification, Warrant

log = logging.getLogger(__name__)

MachineT = TypeVar("MachineT", bound=Machine)
Settled = Callable[[ErrorCode | None], None]

RETRY_MS = 500
"""Delay before a timer whose records could not be written runs again."""

ANSWERS_IN_ONE_STEP = 100
"""Answers of one command, such as those to all members of a group, that one step of the event loop sends."""

LOAD_STRETCH_BYTES = 64 * 1024
"""Bytes replayed in one step while loading."""
LOAD_PAUSE_MS = 0
"""Pause between two such steps."""

_UNAVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """Error code that a coordinator's client gets if the append to its partition failed with `code`."""
    if code in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if code in _TOO_LARGE else code


def _name_of(operation: Operation) -> str:
    """Without its arguments: the delta of the metadata holds whole images."""
    function = operation.func if isinstance(operation, partial) else operation
    return str(getattr(function, "__name__", type(function).__name__))


class ShardState(Enum):
    """Life of a shard, from the moment when the partition is led here."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """The log could not be read. Another replica may succeed."""
    GONE = "gone"
    """Another broker leads the partition; the shard must not be used."""


@dataclass(frozen=True, slots=True)
class ShardContext:
    """Environment of the shards of one internal topic."""

    world: World
    types: dict[int, RecordType]
    """Record types of the topic, by API key."""
    commit_timeout_ms: int
    """Maximum time that an answer waits for the replicas."""
    compression: int
    decisions: Decisions | None


class Shard(Generic[MachineT]):
    """One partition's machine while this broker leads it in leader epoch `epoch`."""

    def __init__(self, context: ShardContext, partition: Partition, machine: MachineT, timers: ShardTimers) -> None:
        world = context.world
        self.partition = partition
        self.machine = machine
        self.state = ShardState.LOADING
        self.loaded_in_ms: int | None = None
        """Duration of loading; None before the shard is active."""
        self.epoch = partition.leader_epoch
        self._world = world
        self._decisions = context.decisions or Decisions("", world.wall_clock.now_ms)
        self._timers = timers
        self._types = context.types
        self._wheel = timers.wheel
        self._commit_timeout_ms = context.commit_timeout_ms
        self._compression = context.compression
        self._waiting: dict[Reply, tuple[WaitingAck[ErrorCode], TimerEntry]] = {}
        timers.shard = self

    def __repr__(self) -> str:
        return f"{self.partition.topic}-{self.partition.index} epoch {self.epoch} {self.state.value}"

    def now(self) -> Now:
        return Now(self._world.monotonic.now_ms(), self._world.wall_clock.now_ms())

    # -- loading

    async def load(self) -> None:
        """Replay the log into the machine. Afterwards the shard is active, failed, or gone."""
        began_ms = self._world.monotonic.now_ms()
        partition_log = self.partition.log
        offset = partition_log.log_start_offset
        try:
            # Transaction markers may be appended meanwhile, so read up to the current end.
            while self.state is ShardState.LOADING and offset < partition_log.log_end_offset:
                offset = self._load_stretch(offset)
                await trio.sleep(self._world.tuned("coordinator.load.pause.ms", LOAD_PAUSE_MS) / 1000)
        except (KafkaError, CorruptBatch, MalformedMessage) as error:
            self._cannot_load(error)
            return
        if self.state is ShardState.LOADING:
            self._loaded(began_ms, offset)

    def load_nothing(self) -> None:
        """Become active at once: nothing was ever in the partition."""
        assert self.partition.log.log_end_offset == 0, f"{self!r} has a log"
        self._loaded(self._world.monotonic.now_ms(), 0)

    def _loaded(self, began_ms: int, offset: int) -> None:
        self.state = ShardState.ACTIVE
        took_ms = self.loaded_in_ms = self._world.monotonic.now_ms() - began_ms
        name, count = self.partition.name, offset - self.partition.log.log_start_offset
        self._decisions.note(
            DecisionKind.LIFECYCLE,
            name,
            f"{self._decisions.node} coordinates {name} in epoch {self.epoch}",
            cause=f"it became the partition's leader and has loaded its {count} offsets in {took_ms} ms",
            leader_epoch=self.epoch,
            offset=offset,
        )
        self._world.fault_point("coordinator.loaded")
        self.run(self.machine.loaded, None)

    def load_failed(self, error: Exception) -> None:
        """Fail the shard after an unexpected error during loading."""
        log.error("%r cannot be loaded", self, exc_info=error)
        self._cannot_load(error)

    def _cannot_load(self, error: Exception) -> None:
        if self.state is not ShardState.LOADING:
            return
        self.state = ShardState.FAILED
        log.error("%r cannot be loaded: %s", self, error)
        summary = f"{self.partition.name} cannot be read, so this broker does not coordinate it"
        cause, epoch = str(error), self.epoch
        self._decisions.note(DecisionKind.LOG, self.partition.name, summary, cause=cause, leader_epoch=epoch)

    def _load_stretch(self, offset: int) -> int:
        """Replay some batches from `offset` on; returns the offset to continue from."""
        end_offset = self.partition.log.log_end_offset
        stretch_bytes = self._world.tuned("coordinator.load.stretch.bytes", LOAD_STRETCH_BYTES)
        size_bytes = 0
        for batch in self.partition.log.batches(offset):
            offset = self._replay_batch(batch)
            size_bytes += len(batch)
            if size_bytes >= stretch_bytes:
                return offset
        # No more batches: compaction may have removed the last ones.
        return max(offset, end_offset)

    def _replay_batch(self, batch: bytes) -> int:
        header = read_header(batch, 0)
        if header.is_control:
            marker = read_end_txn(batch, 0)
            if marker is not None:
                stamp = ProducerStamp(header.producer_id, header.producer_epoch)
                self.machine.replay_marker(stamp, marker.committed)
            return header.next_offset
        stamp_or_none = ProducerStamp(header.producer_id, header.producer_epoch) if header.is_transactional else None
        for record in decode_records(batch):
            self._replay_record(record, stamp_or_none)
        return header.next_offset

    def _replay_record(self, record: Record, producer: ProducerStamp | None) -> None:
        key = None if record.key is None else decode_key(self._types, record.key)
        if key is None:
            log.warning("%r: the record at offset %d is of an unknown type and ignored", self, record.offset)
            return
        value = None
        if record.value is not None:
            value, _ = decode_versioned(self._types[key.API_KEY].value, record.value)
        self.machine.replay(key, value, producer, record.offset)

    # -- commands

    @property
    def may_be_deposed(self) -> bool:
        """True if this broker has lost contact with both controllers and followers, so that another broker may be
        coordinator and the state here stale.
        """
        return self.partition.is_forgotten

    def check_active(self) -> None:
        """Raises KafkaError unless the shard accepts client commands."""
        if self.may_be_deposed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another broker may be the coordinator")
        self._check_state()

    def _check_state(self) -> None:
        if self.state is ShardState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is not ShardState.ACTIVE:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def run(self, operation: Operation, reply: Reply | None) -> None:
        """Run a command. If it raises KafkaError, `reply` is refused with its code."""
        try:
            if reply is None:
                # Events of the broker itself (metadata changes, end of loading) must be applied even if it may be
                # deposed.
                self._check_state()
            else:
                self.check_active()
            outcome = operation(self.now())
        except KafkaError as error:
            if reply is None:
                log.warning("%r: %s: %s", self, _name_of(operation), error)
            else:
                self._refuse_when_committed(reply, error.code)
            return
        self._carry_out(outcome)

    def look(self, operation: Operation) -> Any:
        """Result of a read-only operation. It may be sent when what was written so far is replicated (see
        `when_committed`). Raises KafkaError.
        """
        self.check_active()
        outcome = operation(self.now())
        assert not outcome.records, "a read-only operation writes nothing"
        ((_, answer),) = outcome.answers
        return answer

    def carry_out_now(self, operation: Operation) -> Any:
        """Run one of several commands of a request and append its records. The result may be sent when they are
        replicated (see `when_committed`). Raises KafkaError, also if the append fails.
        """
        self.check_active()
        outcome = operation(self.now())
        assert outcome.failed is None, "an operation that handles its failure returns its own answers"
        ((_, answer),) = outcome.answers
        try:
            self._write(outcome)
        except KafkaError as error:
            raise KafkaError(coordinator_error(error.code), error.message) from error
        self._note_when_committed(outcome, self.partition.log.log_end_offset)
        return answer

    def when_committed(self, settled: Callable[[ErrorCode], None]) -> None:
        """Call `settled` once: with NONE when everything written so far is replicated, or with the error that prevents
        this. May call it at once.
        """
        try:
            self.check_active()
        except KafkaError as error:
            settled(error.code)
            return
        reply = Reply(answer=settled, refuse=settled)
        self._answer_when_committed(reply, ErrorCode.NONE, self.partition.log.log_end_offset)

    def run_timer(self, key: Hashable, operation: Operation) -> None:
        """Run the operation of a timer that is due."""
        if self.state is not ShardState.ACTIVE:
            return
        outcome = operation(self.now())
        if outcome.failed is None:
            outcome.failed = lambda error: self._try_again(key, operation, error)
        self._carry_out(outcome)

    def _try_again(self, key: Hashable, operation: Operation, error: KafkaError) -> Outcome:
        log.info("%r: the records of timer %s cannot be written: %s", self, key, error)
        if self._timers.deadline_ms(key) is None:
            self._timers.schedule(key, self._world.monotonic.now_ms() + RETRY_MS, operation)
        return Outcome()

    def _carry_out(self, outcome: Outcome) -> None:
        try:
            self._write(outcome)
        except KafkaError as error:
            self._append_failed(outcome, error)
            return
        required_offset = self.partition.log.log_end_offset
        self._note_when_committed(outcome, required_offset)
        if len(outcome.answers) > ANSWERS_IN_ONE_STEP:
            self._answer_when_committed(self._in_steps(outcome.answers), None, required_offset)
            return
        for reply, response in outcome.answers:
            self._answer_when_committed(reply, response, required_offset)

    def _write(self, outcome: Outcome) -> None:
        """Append the records and replay them. Raises KafkaError."""
        if outcome.records:
            first_offset = self.partition.log.log_end_offset
            self._append(outcome.records, outcome.producer, outcome.verification)
            self._world.fault_point("coordinator.appended")
            if outcome.replay:
                for offset, record in enumerate(outcome.records, first_offset):
                    self.machine.replay(record.key, record.value, outcome.producer, offset)

    def _note_when_committed(self, outcome: Outcome, required_offset: int) -> None:
        if outcome.notes:
            self._call_when_committed(partial(self._decisions.take, outcome.notes), required_offset)
        if outcome.committed is not None:
            self._call_when_committed(outcome.committed, required_offset)

    def _append(
        self,
        records: list[CoordinatorRecord],
        producer: ProducerStamp | None,
        verification: Verification | None,
    ) -> None:
        now_ms = self._world.wall_clock.now_ms()
        try:
            encoded = [
                Record(
                    0,
                    now_ms,
                    encode_key(record.key),
                    None if record.value is None else encode_versioned(record.value, record.version),
                )
                for record in records
            ]
        except EncodeError as error:
            # A value that fits into a request but not into a record.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the record cannot be written: {error}") from error
        if producer is None:
            batch = build_batch(encoded, compression=self._compression)
        else:
            batch = build_batch(
                encoded,
                compression=self._compression,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transactional=True,
            )
        self._append_batch(batch, Warrant(verification=verification))

    def _append_batch(self, batch: bytes, warrant: Warrant) -> None:
        buffer = bytearray(batch)
        self.partition.append(buffer, [(0, read_header(buffer, 0))], acks=-1, warrant=warrant)

    def _append_failed(self, outcome: Outcome, error: KafkaError) -> None:
        # A failing disk gives the partition up before the append raises. Then this shard has been given up, its waiters
        # were answered, and nothing is left to undo.
        if outcome.failed is not None and self.state is ShardState.ACTIVE:
            instead = outcome.failed(KafkaError(coordinator_error(error.code), error.message))
            assert not instead.records, "a failure handler must not write"
            self._carry_out(instead)
            return
        log.info("%r cannot write: %s", self, error)
        self._in_steps(outcome.answers).refuse(coordinator_error(error.code))

    def begin_verification(self, producer: ProducerStamp, *, supports_epoch_bump: bool) -> Verification | None:
        """Start the check that precedes a producer's first transactional records in this partition.

        Returns what to attach to their `Outcome` after the transaction coordinator has confirmed that this partition is
        part of the transaction; None if the partition has records of it already and needs no check. Raises KafkaError.
        """
        self.check_active()
        return self.partition.begin_verification(
            producer.producer_id, producer.producer_epoch, NO_SEQUENCE, supports_epoch_bump=supports_epoch_bump
        )

    def end_transaction(
        self,
        producer: ProducerStamp,
        marker: EndTxn,
        reply: Reply,
        response: object,
        *,
        transaction_version: int = 0,
    ) -> None:
        """Append a transaction marker and replay it; `response` is sent when the marker is replicated."""
        try:
            self.check_active()
            self._append_batch(
                build_end_txn_batch(
                    marker, producer.producer_id, producer.producer_epoch, self._world.wall_clock.now_ms()
                ),
                Warrant(transaction_version=transaction_version),
            )
        except KafkaError as error:
            reply.refuse(error.code)
            return
        self.machine.replay_marker(producer, marker.committed)
        self._answer_when_committed(reply, response, self.partition.log.log_end_offset)

    # -- answers

    def _call_when_committed(self, committed: Callable[[], None], required_offset: int) -> None:
        def settled(error: ErrorCode | None) -> None:
            # The ISR may be too small to acknowledge new writes, but everything below the high watermark is committed.
            if error in (None, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND) and self.state is ShardState.ACTIVE:
                committed()

        self.partition.when_replicated(required_offset, settled)

    def _answer_when_committed(self, reply: Reply, response: object, required_offset: int) -> None:
        def settled(error: ErrorCode | None) -> None:
            waiting = self._waiting.pop(reply, None)
            if waiting is not None:
                waiting[1].cancel()
            if error is None:
                reply.answer(response)
            else:
                reply.refuse(coordinator_error(error))

        self._wait(reply, required_offset, settled)

    def _in_steps(self, answers: Sequence[tuple[Reply, Any]]) -> Reply:
        """All these replies as one. They are sent in steps, also if the shard is given up meanwhile."""

        def send(code: ErrorCode | None, start: int = 0) -> None:
            end = start + ANSWERS_IN_ONE_STEP
            for reply, response in answers[start:end]:
                if code is None:
                    reply.answer(response)
                else:
                    reply.refuse(code)
            if end < len(answers):
                self._wheel.add(self._world.monotonic.now_ms() + 1, partial(send, code, end))

        return Reply(answer=lambda _: send(None), refuse=send)

    def _refuse_when_committed(self, reply: Reply, code: ErrorCode) -> None:
        """An error reveals state as well, so it waits for that state to be committed."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            reply.refuse(code)
            return

        def settled(error: ErrorCode | None) -> None:
            waiting = self._waiting.pop(reply, None)
            if waiting is not None:
                waiting[1].cancel()
            reply.refuse(code if error is None else coordinator_error(error))

        self._wait(reply, self.partition.log.log_end_offset, settled)

    def _wait(self, reply: Reply, required_offset: int, settled: Settled) -> None:
        if self.may_be_deposed:
            settled(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if self.partition.log.high_watermark >= required_offset and self.partition.is_leader:
            settled(None)
            return
        ack = self.partition.when_replicated(required_offset, settled)
        if ack is None:
            return

        def expired() -> None:
            ack.cancel()
            settled(ErrorCode.REQUEST_TIMED_OUT)

        deadline_ms = self._world.monotonic.now_ms() + self._commit_timeout_ms
        self._waiting[reply] = (ack, self._wheel.add(deadline_ms, expired))

    # -- loss of leadership

    def give_up(self) -> None:
        """The partition moved to another broker, was deleted, or may have moved."""
        if self.state is ShardState.GONE:
            return
        self.state = ShardState.GONE
        self._timers.cancel_all()
        self._in_steps([(reply, None) for reply in self.machine.give_up()]).refuse(ErrorCode.NOT_COORDINATOR)
        # The partition itself answers waiters for the high watermark once it knows that it moved. It may not know yet,
        # and they must not wait for that.
        waiting, self._waiting = self._waiting, {}
        for reply, (ack, timer) in waiting.items():
            ack.cancel()
            timer.cancel()
            reply.refuse(ErrorCode.NOT_COORDINATOR)
