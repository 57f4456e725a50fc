"""Core: the transaction coordinator of one partition of `__transaction_state`: commands in, outcomes out.

A producer gets an id and an epoch, adds partitions to its transaction, and ends it. One record (Prepare*) decides the
result. Once it is committed, `Markers` writes the result into every partition and calls `complete`, which writes the
second record (Complete*). Until then every other request for the transaction gets CONCURRENT_TRANSACTIONS. Only a
request that begins the next transaction is held for a moment, because the retry backoff of producers is longer than
writing markers takes; its record is written together with the Complete* record. A new coordinator finishes the
transactions that it finds prepared.

Knows neither partition leaders nor connections: `markers.py` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, ProducerStamp, Reply, Timers
from barnabas.broker.transactions.decision_notes import (
    note_claimed,
    note_completed,
    note_forgotten,
    note_given,
    note_hanging,
    note_prepared,
)
from barnabas.broker.transactions.held_requests import Adding, HeldRequests
from barnabas.broker.transactions.init_producer import expected_producer, init_error
from barnabas.broker.transactions.transaction import (
    AT_REST,
    BUMPS_EPOCH,
    NEVER_TIMES_OUT_MS,
    PREPARED,
    EndStep,
    TopicPartition,
    Transaction,
    TransactionState,
    by_topic,
    read_transaction,
)
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.messages import describe_transactions as describing
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from barnabas.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Notes
from barnabas.settings.broker import BrokerSettings

log = logging.getLogger(__name__)

FEATURE = "transaction.version"

COMPLETE_RETRY_MS = 500
"""Delay before the Complete* record is written again after a failure."""

TIMED_OUT_AT_ONCE = 50
PARTITIONS_AT_ONCE = 1000
"""Maximum number of timed-out transactions aborted in one batch; the others follow in the next one."""
EXPIRED_AT_ONCE = 500

HANGING_MS = 30_000
"""Wait for markers after which a transaction is reported as hanging."""

_TIMEOUTS = "timeouts"
_EXPIRY = "expiry"


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """A transaction whose result is in the log and must be written to its partitions."""

    transactional_id: str
    producer: ProducerStamp
    """Producer id and epoch of the markers."""
    committed: bool
    partitions: tuple[TopicPartition, ...]
    """Sorted."""
    transaction_version: int


class Markers(Protocol):
    """Writes transaction markers into partitions, and calls `TransactionMachine.complete` when all are written."""

    def write(self, ended: EndedTransaction) -> None: ...


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """Environment of the core of one partition."""

    timers: Timers
    settings: Callable[[], BrokerSettings]
    """Current settings."""
    image: Callable[[], MetadataImage]
    markers: Markers
    next_producer_id: Callable[[], int]
    """A producer id that no other producer has. Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if none is available
    yet.
    """


class _Given(NamedTuple):
    """A producer that requested a new epoch, and the epoch it was given."""

    before: ProducerStamp
    given: ProducerStamp


class TransactionFilter(NamedTuple):
    """Filter of ListTransactions; an empty one matches every transaction."""

    states: frozenset[TransactionState] | None
    """None matches any state."""
    producer_ids: frozenset[int]
    longer_than_ms: int
    """A negative value matches any duration."""


class TransactionMachine:
    """The transactional ids of one partition. Implements `broker.coordinator.outcome.Machine`."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self._transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, None] = {}
        """Open transactions, which may time out."""
        self._prepared: dict[str, bool] = {}
        """Prepared transactions, and whether they were reported as hanging."""
        self._given: dict[str, _Given] = {}
        """Answer to the latest InitProducerId of each id, for retries of the same request. A new coordinator does not
        know it and fences the retry, because the log has no field for it.
        """
        self._held = HeldRequests(context.timers, context.settings)

    # -- replay, the same live and while loading

    def replay(self, key: Message, value: Message | None, producer: ProducerStamp | None, offset: int) -> None:
        if not isinstance(key, TransactionLogKey):
            raise MalformedMessage(f"a record of __transaction_state with the key {type(key).__name__}")
        transactional_id = key.transactional_id
        self._ongoing.pop(transactional_id, None)
        self._prepared.pop(transactional_id, None)
        if value is None:
            self._transactions.pop(transactional_id, None)
            self._given.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue), "the type of a value must follow from its key"
        transaction = read_transaction(key, value)
        self._transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = None
        elif transaction.state in PREPARED:
            self._prepared[transactional_id] = False

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        """This topic is never written in a transaction."""

    def loaded(self, now: Now) -> Outcome:
        self._watch_timeouts(now)
        self._watch_expiry(now)
        prepared = [each for each in self._transactions.values() if each.state in PREPARED]
        if prepared:
            log.info("%d prepared transactions are being finished", len(prepared))
        # The last loaded records may not be committed yet; no partition may learn of them before they are.
        return Outcome(committed=partial(self._write_markers, [each.transactional_id for each in prepared]))

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        """Feature levels are read from the image when they are needed; the marker writer looks up leaders."""
        return Outcome()

    def give_up(self) -> list[Reply]:
        return self._held.give_up()

    # -- lookup

    def get(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def __len__(self) -> int:
        return len(self._transactions)

    @property
    def transactions(self) -> list[Transaction]:
        return list(self._transactions.values())

    @property
    def feature_level(self) -> int:
        return self._context.image().features.level(FEATURE)

    def _must_get(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "transactional id must not be empty")
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    # -- InitProducerId

    def init_producer_id(self, request: InitProducerIdRequest, reply: Reply, now: Now) -> Outcome:
        """Assign a producer id and epoch, or bump the epoch (KIP-360). Raises KafkaError: INVALID_REQUEST,
        INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, COORDINATOR_LOAD_IN_PROGRESS, …
        """
        transactional_id = request.transactional_id
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "transactional id must not be empty")
        expected = expected_producer(request)
        timeout_ms = self._timeout_ms(request)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            # The transactional id has expired together with the producer id and epoch it had.
            transaction = Transaction(transactional_id, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, timeout_ms)
            given = ProducerStamp(self._context.next_producer_id(), 0)
        elif transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif transaction.state is TransactionState.ONGOING:
            if expected not in (None, transaction.client):
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            if request.keep_prepared_txn and transaction.is_two_phase:
                return self._claim(transaction, reply, now)
            ask_again = init_error(ErrorCode.CONCURRENT_TRANSACTIONS)
            fenced = self._fence(transaction, now)
            outcome = self._ended([fenced], [(reply, ask_again)])
            cause = "another producer started with this id (InitProducerId) and fences the previous one"
            note_prepared(outcome.notes, transaction, fenced, cause, routine=False)
            return outcome
        else:
            given = self._next_producer(transaction, expected)
        self._remember(transactional_id, expected, given)
        answer = InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.producer_epoch)
        record = transaction.given_to(given, timeout_ms, now.wall_ms).record(self.feature_level)
        outcome = Outcome([record], [(reply, answer)])
        note_given(outcome.notes, transaction, given)
        return outcome

    def _claim(self, transaction: Transaction, reply: Reply, now: Now) -> Outcome:
        """Keep the transaction, and give the producer an id and an epoch to complete it with (KIP-939). Each retry gets
        the next epoch.
        """
        client = transaction.client
        given = ProducerStamp(client.producer_id, client.producer_epoch + 1)
        if transaction.exhausted:
            given = ProducerStamp(self._context.next_producer_id(), 0)
        self._remember(transaction.transactional_id, None, given)
        answer = InitProducerIdResponse(
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            ongoing_txn_producer_id=transaction.producer_id,
            ongoing_txn_producer_epoch=transaction.producer_epoch,
        )
        record = transaction.claimed_by(given, now.wall_ms).record(self.feature_level)
        outcome = Outcome([record], [(reply, answer)])
        note_claimed(outcome.notes, transaction, given)
        return outcome

    def _timeout_ms(self, request: InitProducerIdRequest) -> int:
        settings = self._context.settings()
        if request.enable2_pc and not settings.transaction_two_phase_commit_enable:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if request.keep_prepared_txn:
            if not settings.transaction_two_phase_commit_enable or self.feature_level < BUMPS_EPOCH:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "KeepPreparedTxn is not supported")
            if not request.enable2_pc:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "KeepPreparedTxn needs Enable2Pc")
        if request.enable2_pc:
            return NEVER_TIMES_OUT_MS
        if not 0 < request.transaction_timeout_ms <= settings.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return request.transaction_timeout_ms

    def _next_producer(self, transaction: Transaction, expected: ProducerStamp | None) -> ProducerStamp:
        """The next producer id and epoch of a transactional id without an open transaction."""
        current = transaction.producer
        if expected not in (None, current):
            if self._given.get(transaction.transactional_id) == (expected, current) or transaction.ended_by(expected):
                # A retry whose answer was lost; no other producer has been given an epoch since.
                return current
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if transaction.exhausted:
            return ProducerStamp(self._context.next_producer_id(), 0)
        return ProducerStamp(current.producer_id, current.producer_epoch + 1)

    def _remember(self, transactional_id: str, expected: ProducerStamp | None, given: ProducerStamp) -> None:
        if expected is None:
            self._given.pop(transactional_id, None)
        else:
            self._given[transactional_id] = _Given(expected, given)

    # -- AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerStamp,
        partitions: Iterable[TopicPartition],
        transaction_version: int,
        answer: tuple[Reply, Callable[[ErrorCode], object]],
        now: Now,
    ) -> Outcome:
        """Add partitions to the transaction, then send `answer(error_code)`. Held while the previous transaction is
        prepared. Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
        """
        transaction = self._must_get(transactional_id)
        adding = Adding(producer, frozenset(partitions), transaction_version, *answer)
        if transaction.state in PREPARED:
            self._held.hold(transactional_id, adding, now)
            return Outcome()
        longer = _added(transaction, adding, now)
        records = [] if longer is transaction else [longer.record(self.feature_level)]
        return Outcome(records, [adding.answer(ErrorCode.NONE)])

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerStamp,
        partitions: Iterable[TopicPartition],
        answer: tuple[Reply, Callable[[frozenset[TopicPartition]], object]],
        now: Now,
    ) -> Outcome:
        """Check which partitions are not in the producer's transaction (KIP-890) and send `answer(missing)`. Raises
        KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        transaction = self._must_get(transactional_id)
        transaction.check_verifying(producer)
        reply, response = answer
        return Outcome(answers=[(reply, response(frozenset(partitions) - transaction.partitions))])

    # -- EndTxn

    def end_transaction(self, request: EndTxnRequest, transaction_version: int, reply: Reply, now: Now) -> Outcome:
        """Commit or abort. The answer is sent when the result is committed to the log; markers follow. Raises
        KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE, COORDINATOR_LOAD_IN_PROGRESS.
        """
        transaction = self._must_get(request.transactional_id)
        producer = ProducerStamp(request.producer_id, request.producer_epoch)
        step = transaction.check_end(producer, request.committed, transaction_version)
        if step is EndStep.REPEATED:
            return Outcome(answers=[(reply, _end_response(transaction.producer))])
        prepared = transaction.prepared(
            request.committed,
            transaction_version,
            now.wall_ms,
            self._successor(transaction, transaction_version),
        )
        outcome = self._ended([prepared], [(reply, _end_response(prepared.producer_afterwards))])
        note_prepared(outcome.notes, transaction, prepared, "requested by its producer (EndTxn)", routine=True)
        return outcome

    def _successor(self, transaction: Transaction, transaction_version: int) -> ProducerStamp | None:
        """The producer after a transaction, if it is not the same as in its markers."""
        if transaction.exhausted and transaction_version >= BUMPS_EPOCH:
            return ProducerStamp(self._context.next_producer_id(), 0)
        if not transaction.is_claimed:
            return None
        client = transaction.client
        return client._replace(producer_epoch=client.producer_epoch + (transaction_version >= BUMPS_EPOCH))

    def _fence(self, transaction: Transaction, now: Now) -> Transaction:
        """Abort the transaction and fence its producer, which finds out by its epoch."""
        version = BUMPS_EPOCH if self.feature_level >= BUMPS_EPOCH else 0
        # The producer that claimed it is to be fenced, too.
        successor = self._successor(transaction, BUMPS_EPOCH if transaction.is_claimed else version)
        return transaction.fenced().prepared(False, version, now.wall_ms, successor)

    def _ended(self, prepared: list[Transaction], answers: list[tuple[Reply, object]]) -> Outcome:
        return Outcome(
            [each.record(self.feature_level) for each in prepared],
            answers,
            committed=partial(self._write_markers, [each.transactional_id for each in prepared]),
        )

    def _write_markers(self, transactional_ids: list[str]) -> None:
        """The results are committed: write the markers."""
        for transactional_id in transactional_ids:
            transaction = self._transactions[transactional_id]
            assert transaction.state in PREPARED, "a prepared transaction must not change"
            self._context.markers.write(
                EndedTransaction(
                    transactional_id,
                    transaction.producer,
                    transaction.commits,
                    tuple(sorted(transaction.partitions)),
                    transaction.transaction_version,
                )
            )

    def complete(self, ended: EndedTransaction, now: Now) -> Outcome:
        """All markers of `ended` are written: complete the transaction, and begin the next one if a request is held."""
        transaction = self._transactions.get(ended.transactional_id)
        if transaction is None or transaction.state not in PREPARED or transaction.producer != ended.producer:
            return Outcome()
        prepared = transaction
        transaction = transaction.completed(now.wall_ms)
        records, answers = [transaction.record(self.feature_level)], []
        held = self._held.take(ended.transactional_id)
        for adding in held:
            try:
                longer = _added(transaction, adding, now)
            except KafkaError as error:
                answers.append(adding.answer(error.code))
                continue
            if longer is not transaction:
                transaction = longer
                records.append(longer.record(self.feature_level))
            answers.append(adding.answer(ErrorCode.NONE))
        outcome = Outcome(records, answers, failed=lambda error: self._complete_later(ended, held, error, now))
        note_completed(outcome.notes, prepared, prepared.completed(now.wall_ms))
        return outcome

    def _complete_later(
        self, ended: EndedTransaction, held: list[Adding], error: KafkaError, now: Now
    ) -> Outcome:
        log.info("the completion of %r cannot be written: %s", ended.transactional_id, error)
        self._context.timers.schedule(
            (ended.transactional_id, "complete"),
            now.monotonic_ms + COMPLETE_RETRY_MS,
            partial(self.complete, ended),
        )
        return Outcome(answers=[each.answer(ErrorCode.CONCURRENT_TRANSACTIONS) for each in held])

    # -- timeouts and expiry

    def _watch_timeouts(self, now: Now, wait_ms: int | None = None) -> None:
        if wait_ms is None:
            wait_ms = self._context.settings().transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._context.timers.schedule(_TIMEOUTS, now.monotonic_ms + wait_ms, self._abort_timed_out)

    def _abort_timed_out(self, now: Now) -> Outcome:
        late = [self._transactions[each] for each in self._ongoing if self._transactions[each].timed_out(now.wall_ms)]
        fenced: list[Transaction] = []
        notes = self._hanging(now)
        partitions = 0
        for transaction in late[:TIMED_OUT_AT_ONCE]:
            partitions += len(transaction.partitions)
            if fenced and partitions > PARTITIONS_AT_ONCE:
                break
            try:
                fenced.append(self._fence(transaction, now))
            except KafkaError as error:
                log.info("%r timed out, but cannot be aborted yet: %s", transaction.transactional_id, error)
                continue
            open_ms = now.wall_ms - transaction.started_ms
            cause = f"it was open for {open_ms} ms, its timeout is {transaction.timeout_ms} ms (transaction.timeout.ms)"
            note_prepared(notes, transaction, fenced[-1], cause, routine=False)
        outcome = self._ended(fenced, [])
        outcome.notes = notes
        outcome.failed = lambda error: self._write_later(self._watch_timeouts, error, now)
        self._watch_timeouts(now, 0 if fenced and len(fenced) < len(late) else None)
        return outcome

    def _hanging(self, now: Now) -> Notes:
        """Note each transaction whose markers take too long, once."""
        notes = Notes()
        for transactional_id in self._prepared:
            transaction = self._transactions[transactional_id]
            waited_ms = now.wall_ms - transaction.updated_ms
            if waited_ms >= HANGING_MS and not self._prepared[transactional_id]:
                self._prepared[transactional_id] = True
                note_hanging(notes, transaction, waited_ms)
        return notes

    def _write_later(self, watch: Callable[[Now], None], error: KafkaError, now: Now) -> Outcome:
        log.info("timed-out or expired transactions cannot be written: %s", error)
        watch(now)
        return Outcome()

    def _watch_expiry(self, now: Now, wait_ms: int | None = None) -> None:
        if wait_ms is None:
            wait_ms = self._context.settings().transaction_remove_expired_transaction_cleanup_interval_ms
        self._context.timers.schedule(_EXPIRY, now.monotonic_ms + wait_ms, self._forget_expired)

    def _forget_expired(self, now: Now) -> Outcome:
        before_ms = now.wall_ms - self._context.settings().transactional_id_expiration_ms
        expired = [
            each for each in self._transactions.values() if each.state in AT_REST and each.updated_ms <= before_ms
        ]
        tombstones: list[CoordinatorRecord] = [each.tombstone() for each in expired[:EXPIRED_AT_ONCE]]
        self._watch_expiry(now, 0 if len(expired) > EXPIRED_AT_ONCE else None)
        outcome = Outcome(tombstones, failed=lambda error: self._write_later(self._watch_expiry, error, now))
        for each in expired[:EXPIRED_AT_ONCE]:
            note_forgotten(outcome.notes, each, now.wall_ms - each.updated_ms)
        return outcome

    # -- descriptions

    def describe(self, transactional_id: str, reply: Reply, now: Now) -> Outcome:
        """One transaction of DescribeTransactions. Raises KafkaError: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        described = describing.TransactionState(
            transactional_id=transactional_id,
            transaction_state=transaction.state.label,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.started_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                describing.TopicData(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(transaction.partitions).items()
            ],
        )
        return Outcome(answers=[(reply, described)])

    def matching(self, wanted: TransactionFilter, now: Now) -> Iterator[Transaction | None]:
        """Yields every transaction that matches the filter, and None for each that does not."""
        for each in list(self._transactions.values()):
            yield each if _passes(each, wanted, now.wall_ms) else None


def _added(transaction: Transaction, adding: Adding, now: Now) -> Transaction:
    """The transaction with the partitions added; the same object if it had them. Raises KafkaError."""
    transaction.check_adding(adding.producer)
    if transaction.state is TransactionState.ONGOING and adding.partitions <= transaction.partitions:
        return transaction
    return transaction.with_partitions(adding.partitions, adding.transaction_version, now.wall_ms)


def _end_response(producer: ProducerStamp) -> EndTxnResponse:
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _passes(transaction: Transaction, wanted: TransactionFilter, wall_ms: int) -> bool:
    if wanted.producer_ids and transaction.producer_id not in wanted.producer_ids:
        return False
    if wanted.states is not None and transaction.state not in wanted.states:
        return False
    # A transaction that has not begun counts as begun long ago, as in Kafka.
    return wanted.longer_than_ms < 0 or wall_ms - transaction.started_ms > wanted.longer_than_ms
