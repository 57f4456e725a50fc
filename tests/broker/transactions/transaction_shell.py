"""A shell for the transaction coordinator in virtual time: clock, timers, a log in memory, producers, and partitions
that accept markers on demand.

Carries out the core's decisions as `broker.coordinator.shard.Shard` does, and checks after each step what must always
hold: a request is answered once, every step is in the table, an epoch never decreases, a transaction has one result,
only committed decisions are sent to partitions, and the log read back equals the state in memory.

A transaction is identified by the record that began it. Its producer epoch does not identify it: an EndTxn before
version 5 keeps the epoch, so one epoch may have many transactions with a result each, also after an end of version 2
has given that epoch (a client may use either version at any time, in Kafka too).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Operation, Outcome, ProducerStamp, Reply
from barnabas.broker.transactions.machine import EndedTransaction, TransactionContext, TransactionMachine
from barnabas.broker.transactions.transaction import (
    AT_REST,
    BUMPS_EPOCH,
    LEGAL_PREVIOUS,
    MAX_EPOCH,
    PREPARED,
    TopicPartition,
    Transaction,
    TransactionState,
    read_transaction,
)
from barnabas.kraft.metadata.image import FeaturesImage, MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import transaction_log
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from barnabas.protocol.records.coordinator import (
    decode_key,
    decode_versioned,
    encode_key,
    encode_versioned,
    record_types,
)
from barnabas.runtime.decisions import Decisions
from tests.broker.some_settings import some_settings

ID = "payments"
TIMEOUT_MS = 60_000
WALL_MS = 1_700_000_000_000
TYPES = dict(record_types(transaction_log))

A, B, C = ("orders", 0), ("orders", 1), ("stock", 0)


class VirtualTimers:
    """`broker.coordinator.outcome.Timers` with a manual clock."""

    def __init__(self) -> None:
        self.due: dict[Hashable, tuple[int, int, Operation]] = {}
        self._order = 0

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        self._order += 1
        self.due[key] = (deadline_ms, self._order, operation)

    def cancel(self, key: Hashable) -> None:
        self.due.pop(key, None)

    def deadline_ms(self, key: Hashable) -> int | None:
        return self.due[key][0] if key in self.due else None

    def pop_due(self, now_ms: int) -> tuple[int, Operation] | None:
        first = min(self.due.items(), key=lambda item: item[1][:2], default=None)
        if first is None or first[1][0] > now_ms:
            return None
        del self.due[first[0]]
        return first[1][0], first[1][2]


class Asked:
    """A request and its answer."""

    def __init__(self) -> None:
        self.error: ErrorCode | None = None
        self.response: Any = None
        self.reply = Reply(self._answer, self._refuse)

    @property
    def waits(self) -> bool:
        return self.error is None

    @property
    def producer(self) -> ProducerStamp:
        """Producer id and epoch of the answer."""
        assert self.error is ErrorCode.NONE, self.error
        return ProducerStamp(self.response.producer_id, self.response.producer_epoch)

    def _answer(self, response: Any) -> None:
        assert self.error is None, "answered twice"
        self.response = response
        self.error = ErrorCode(getattr(response, "error_code", 0))

    def _refuse(self, code: ErrorCode) -> None:
        assert self.error is None, "answered twice"
        self.error = code


@dataclass(frozen=True)
class Added:
    """Response to added partitions."""

    error_code: ErrorCode


class Shell:
    """One partition of `__transaction_state` that is led here."""

    def __init__(self, level: int = 2, **settings: int) -> None:
        self.level = level
        self.settings = some_settings(**settings)
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self._read: list[tuple[str, Transaction | None]] = []
        """The log as read back so far."""
        self._found: dict[str, Transaction] = {}
        """State after all of `_read`."""
        self._newest: dict[str, int] = {}
        """By id: the offset of its last record in `_read`."""
        self._begun: dict[str, int] = {}
        """By id: the offset of the record that began the open or the last transaction."""
        self.replicated = 0
        """Length of the committed log."""
        self.append_error: ErrorCode | None = None
        """If set, every append fails."""
        self.is_cut_off = False
        """No follower fetches: nothing is committed, and no answer is sent."""
        self.last_producer_id = 999
        self.has_producer_ids = True
        self.markers_hang = False
        """The partitions accept no markers until `take_markers`."""
        self.results: dict[tuple[str, int], bool] = {}
        """By id, and the offset where the transaction began."""
        self.markers: list[EndedTransaction] = []
        self._markers_by_transaction: dict[tuple[str, int], EndedTransaction] = {}
        self.decisions = Decisions("broker-1", lambda: WALL_MS + self.now_ms)
        self._begin()

    def _begin(self) -> None:
        self.timers = VirtualTimers()
        self.held: list[Callable[[], None]] = []
        self.on_their_way: list[EndedTransaction] = []
        self.machine = TransactionMachine(
            TransactionContext(
                timers=self.timers,
                settings=lambda: self.settings,
                image=lambda: MetadataImage(features=FeaturesImage(finalized={"transaction.version": self.level})),
                markers=self,
                next_producer_id=self._next_producer_id,
            )
        )
        if not hasattr(self, "asked"):
            self.asked: list[Asked] = []
            self.run(self.machine.loaded)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    def _next_producer_id(self) -> int:
        if not self.has_producer_ids:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.last_producer_id += 1
        return self.last_producer_id

    # -- the duties of the shard

    def run(self, operation: Operation, reply: Reply | None = None) -> None:
        try:
            outcome = operation(self.now)
        except KafkaError as error:
            assert reply is not None, "no reply is pending"
            self.held.append(partial(reply.refuse, error.code))
        else:
            self._carry_out(outcome)
        if not self.is_cut_off:
            self.replicate()
        self._check_reading_back()

    def _carry_out(self, outcome: Outcome) -> None:
        if outcome.records and self.append_error is not None:
            if outcome.failed is None:
                for reply, _ in outcome.answers:
                    reply.refuse(self.append_error)
                return
            outcome = outcome.failed(KafkaError(self.append_error))
            assert not outcome.records
        for record in outcome.records:
            self._append(record)
        if outcome.notes:
            self.held.append(partial(self.decisions.take, outcome.notes))
        if outcome.committed is not None:
            self.held.append(outcome.committed)
        self.held += [partial(reply.answer, response) for reply, response in outcome.answers]

    def _append(self, record: CoordinatorRecord) -> None:
        key = record.key
        assert isinstance(key, TransactionLogKey)
        before = self.machine.get(key.transactional_id)
        value = None if record.value is None else encode_versioned(record.value, record.version)
        self.log.append((encode_key(key), value))
        self.machine.replay(key, record.value, None, 0)
        after = self.machine.get(key.transactional_id)
        self.read_log()
        if after is None:
            assert before is not None and before.state in LEGAL_PREVIOUS[TransactionState.DEAD]
        elif before is not None:
            self._check_step(before, after)

    def _check_step(self, before: Transaction, after: Transaction) -> None:
        fenced = before.state is TransactionState.ONGOING and after.state is TransactionState.PREPARE_ABORT
        assert before.state in LEGAL_PREVIOUS[after.state] or fenced
        if before.producer_id == after.producer_id:
            assert after.producer_epoch >= before.producer_epoch, "an epoch fell"
        else:
            assert after.producer_id > before.producer_id
            assert after.producer_epoch == 0 or after.producer == before.producer_afterwards
        if after.state is TransactionState.ONGOING and before.state is TransactionState.ONGOING:
            assert after.client >= before.client, "a producer that was fenced is back"
        if after.state is TransactionState.ONGOING and before.state is TransactionState.ONGOING:
            assert after.partitions >= before.partitions and after.started_ms == before.started_ms
        if after.state in PREPARED:
            assert after.partitions == before.partitions
            bumps = after.transaction_version >= BUMPS_EPOCH and before.producer_epoch < MAX_EPOCH
            assert not bumps or after.producer_epoch == before.producer_epoch + 1, "an epoch of its own"
            begun = self._begun[after.transactional_id]
            result = self.results.setdefault((after.transactional_id, begun), after.commits)
            assert result == after.commits, "both committed and aborted"

    def _check_reading_back(self) -> None:
        """Replays the log as a new coordinator would; it must equal the live state."""
        assert {each.transactional_id: each for each in self.machine.transactions} == self.read_log()

    def read_log(self) -> dict[str, Transaction]:
        for offset, (key_bytes, value_bytes) in enumerate(self.log[len(self._read) :], len(self._read)):
            key = decode_key(TYPES, key_bytes)
            assert isinstance(key, TransactionLogKey)
            self._newest[key.transactional_id] = offset
            if value_bytes is None:
                del self._found[key.transactional_id]
                self._read.append((key.transactional_id, None))
            else:
                value, _ = decode_versioned(TransactionLogValue, value_bytes)
                assert isinstance(value, TransactionLogValue)
                found = read_transaction(key, value)
                before = self._found.get(key.transactional_id)
                if found.state not in AT_REST and (before is None or before.state in AT_REST):
                    self._begun[key.transactional_id] = offset
                self._found[key.transactional_id] = found
                self._read.append((key.transactional_id, found))
        return self._found

    def replicate(self) -> None:
        """All records are committed: send answers and markers."""
        self.is_cut_off = False
        while self.held:
            self.replicated = len(self.log)
            held, self.held = self.held, []
            for leave in held:
                leave()

    def pass_ms(self, duration_ms: int) -> None:
        """Advance the clock and run the timers that are due."""
        until_ms = self.now_ms + duration_ms
        while (due := self.timers.pop_due(until_ms)) is not None:
            self.now_ms = max(self.now_ms, due[0])
            self.run(due[1])
        self.now_ms = until_ms

    def fail_over(self, lost: int = 0) -> None:
        """Another broker becomes the leader; it lacks the last `lost` uncommitted records."""
        for reply in self.machine.give_up():
            reply.refuse(ErrorCode.NOT_COORDINATOR)
        kept = max(self.replicated, len(self.log) - lost)
        del self.log[kept:]
        self._read, self._found, self._newest, self._begun = [], {}, {}, {}
        for asked in self.asked:
            if asked.waits:
                asked.reply.refuse(ErrorCode.NOT_COORDINATOR)
        self.asked.clear()
        self.is_cut_off = False
        self.results = {each: result for each, result in self.results.items() if each in self._markers_by_transaction}
        self._begin()
        for key_bytes, value_bytes in self.log:
            key = decode_key(TYPES, key_bytes)
            assert key is not None
            value = None if value_bytes is None else decode_versioned(TransactionLogValue, value_bytes)[0]
            self.machine.replay(key, value, None, 0)
        self.run(self.machine.loaded)

    # -- markers

    def write(self, ended: EndedTransaction) -> None:
        """Implements `Markers`."""
        decided = self.read_log()[ended.transactional_id]
        assert decided.state in PREPARED, "nothing is decided"
        # An earlier record with the same result may belong to a previous transaction and does not justify this marker.
        assert self._newest[ended.transactional_id] < self.replicated, "marker sent before the decision was committed"
        assert ended == _end_of(decided), "marker differs from the decision"
        begun = self._begun[ended.transactional_id]
        first = self._markers_by_transaction.setdefault((ended.transactional_id, begun), ended)
        assert first == ended, "two different markers"
        self.markers.append(ended)
        self.on_their_way.append(ended)
        if not self.markers_hang:
            self.take_markers()

    def take_markers(self) -> None:
        """All partitions accept their markers."""
        ended, self.on_their_way = self.on_their_way, []
        for each in ended:
            self.run(partial(self.machine.complete, each))

    # -- producers

    def ask(self, command: Callable[[Reply], Operation]) -> Asked:
        asked = Asked()
        self.asked.append(asked)
        self.run(command(asked.reply), asked.reply)
        return asked

    def init(
        self, had: ProducerStamp | None = None, transactional_id: str = ID, timeout_ms: int = TIMEOUT_MS, **more: bool
    ) -> Asked:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **more
        )
        if had is not None:
            request.producer_id, request.producer_epoch = had
        return self.ask(lambda reply: partial(self.machine.init_producer_id, request, reply))

    def add(
        self, producer: ProducerStamp, *partitions: TopicPartition, version: int = 2, transactional_id: str = ID
    ) -> Asked:
        return self.ask(
            lambda reply: partial(
                self.machine.add_partitions, transactional_id, producer, partitions, version, (reply, Added)
            )
        )

    def verify(self, producer: ProducerStamp, *partitions: TopicPartition) -> Asked:
        """The response is the list of missing partitions."""
        return self.ask(
            lambda reply: partial(self.machine.verify_partitions, ID, producer, partitions, (reply, sorted))
        )

    def end(self, producer: ProducerStamp, commit: bool, version: int = 2, transactional_id: str = ID) -> Asked:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )
        return self.ask(lambda reply: partial(self.machine.end_transaction, request, version, reply))

    def transaction(self, transactional_id: str = ID) -> Transaction:
        found = self.machine.get(transactional_id)
        assert found is not None
        return found

    @property
    def state(self) -> TransactionState:
        return self.transaction().state


def with_epoch(shell: Shell, epoch: int) -> ProducerStamp:
    """A producer that has reached this epoch."""
    producer = shell.init().producer
    aged = replace(shell.transaction(), producer_epoch=epoch)
    shell._append(aged.record(shell.level))
    return producer._replace(producer_epoch=epoch)


def _end_of(decided: Transaction) -> EndedTransaction:
    """The marker of a prepared transaction."""
    return EndedTransaction(
        decided.transactional_id,
        decided.producer,
        decided.commits,
        tuple(sorted(decided.partitions)),
        decided.transaction_version,
    )
