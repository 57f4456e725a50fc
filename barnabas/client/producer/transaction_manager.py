"""Core: the state of one producer's transactions, the requests that may come next, and the meaning of each response.

    Uninitialized ─► Initializing ─► Ready ─► InTransaction ─► Committing ─► Ready
                          ▲                        │    └────► Aborting ───► Ready
                          └────── Aborting ◄── AbortableError              any ─► FatalError

    Initializing, InTransaction ─► Prepared ─► Committing, Aborting        two-phase commit

Beginning a transaction sends nothing. The finalised transaction.version decides how the coordinator learns its
partitions: in version 1 the producer adds each before the first write to it, and bumps its epoch only after an error;
from version 2 on the brokers add them, and every transaction ends with a new epoch (KIP-98, KIP-360, KIP-890).
Preparing a transaction sends nothing either: it is flushed, and takes no more records (KIP-939).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from barnabas.client.errors import IllegalStateException
from barnabas.client.groups.membership import ConsumerGroupMetadata
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.producer.prepared_state import PreparedTxnState
from barnabas.client.transaction_requests import (
    BROKERS_ADD_FROM,
    LAST_WITHOUT_IMPLICIT_ADD,
    NO_PRODUCER,
    ProducerId,
    TransactionRequests,
    add_error,
    added_codes,
    commit_error,
)
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse


class TransactionState(Enum):
    UNINITIALIZED = "Uninitialized"
    INITIALIZING = "Initializing"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    PREPARED = "PreparedTransaction"
    COMMITTING = "CommittingTransaction"
    ABORTING = "AbortingTransaction"
    ABORTABLE_ERROR = "AbortableError"
    FATAL_ERROR = "FatalError"


_S = TransactionState
TRANSITIONS: Mapping[TransactionState, tuple[TransactionState, ...]] = {
    _S.UNINITIALIZED: (_S.INITIALIZING, _S.FATAL_ERROR),
    _S.INITIALIZING: (_S.READY, _S.PREPARED, _S.FATAL_ERROR),
    _S.READY: (_S.UNINITIALIZED, _S.IN_TRANSACTION, _S.FATAL_ERROR),
    _S.IN_TRANSACTION: (_S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR),
    _S.PREPARED: (_S.COMMITTING, _S.ABORTING, _S.FATAL_ERROR),
    _S.COMMITTING: (_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR),
    _S.ABORTING: (_S.INITIALIZING, _S.READY, _S.FATAL_ERROR),
    _S.ABORTABLE_ERROR: (_S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR),
    _S.FATAL_ERROR: (),
}
"""All allowed transitions."""


class Verdict(Enum):
    """The meaning of a response for the caller."""

    DONE = "done"
    AGAIN = "again"
    ELSEWHERE = "elsewhere"
    """Retry with another coordinator."""
    FAILED = "failed"
    """The state has the reason."""


FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors that an abort resolves; any other error that is not retriable is fatal for the producer."""
ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class TransactionManager:
    """The state of one transactional id."""

    def __init__(self, transactional_id: str, timeout_ms: int | None) -> None:
        """`timeout_ms` is None for two-phase commit: an external coordinator ends each transaction."""
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        """The reason for an error state."""
        self.producer: ProducerId | None = None
        self.version = 0
        """The transaction.version in force."""
        self.prepared: PreparedTxnState | None = None
        """The transaction that was prepared, or was found at the start; empty if none was found. None: not prepared."""
        self._keeps_prepared = False
        self._started = False
        """The coordinator may know this transaction."""
        self._partitions: dict[TopicPartition, bool] = {}
        """Partitions that it writes to; True once the coordinator knows them."""

    def __repr__(self) -> str:
        return f"{self.transactional_id} as {self.producer}: {self.state.value}"

    @property
    def brokers_add(self) -> bool:
        """Brokers add partitions and offsets, and each end bumps the epoch."""
        return self.version >= BROKERS_ADD_FROM

    def at_most(self, request: str) -> int | None:
        """Highest version of that request with the wanted semantics; None for any."""
        return None if self.brokers_add else LAST_WITHOUT_IMPLICIT_ADD[request]

    def _go(self, state: TransactionState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalStateException(f"{self!r} cannot go to state {state.value}")
        self.state = state

    def check(self) -> None:
        """Raises the error of an error state."""
        if self.error is not None:
            raise KafkaError(self.error.code, self.error.message) from self.error

    def check_open(self) -> None:
        """Raises the error of an error state, or IllegalStateException if no transaction is open."""
        self.check()
        if self.state is not TransactionState.IN_TRANSACTION:
            raise IllegalStateException(f"{self!r}: no transaction is open")

    def fail(self, code: ErrorCode, message: str | None, *, fatal: bool = False) -> None:
        """The open transaction, or the producer, has failed."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        if fatal or TransactionState.ABORTABLE_ERROR not in TRANSITIONS[self.state]:
            self._go(TransactionState.FATAL_ERROR)
        else:
            self._go(TransactionState.ABORTABLE_ERROR)
        if fatal and code in FENCED:
            code = ErrorCode.PRODUCER_FENCED
        self.error = KafkaError(code, f"{self.transactional_id}: {message or code.name}")

    # ---- a producer id

    def initialize(self, version: int, *, keep_prepared: bool = False) -> None:
        """`version` is the finalised transaction.version. `keep_prepared`: do not abort a prepared transaction."""
        self._go(TransactionState.INITIALIZING)
        self.version = version
        self._keeps_prepared = keep_prepared

    def init_request(self) -> InitProducerIdRequest:
        """Carries the current producer id, if there is one, so that only this producer gets the next epoch."""
        requests = TransactionRequests(self.transactional_id, self.producer or NO_PRODUCER)
        if self.timeout_ms is None:
            return requests.init_two_phase(keep_prepared=self._keeps_prepared)
        return requests.init_producer_id(self.timeout_ms)

    def initialized(self, response: InitProducerIdResponse) -> Verdict:
        verdict = self._judge(error_code(response.error_code))
        if verdict is Verdict.DONE:
            self.producer = ProducerId(response.producer_id, response.producer_epoch)
            if self._keeps_prepared:
                found = (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
                self.prepared = PreparedTxnState(*found)
                self._started = self.prepared.has_transaction
            self._go(TransactionState.PREPARED if self._started else TransactionState.READY)
            self._keeps_prepared = False
        return verdict

    # ---- members of the transaction

    def begin(self) -> None:
        self.check()
        self._go(TransactionState.IN_TRANSACTION)
        self.prepared = None
        self._started = False
        self._partitions = {}

    def writes_to(self, partition: TopicPartition) -> bool:
        """The producer is about to write to `partition`; True if it may do so at once."""
        if self.brokers_add:
            self._started = True
            self._partitions[partition] = True
        return self._partitions.setdefault(partition, False)

    def is_member(self, partition: TopicPartition) -> bool:
        """Whether it was allowed to write there before."""
        return self._partitions.get(partition, False)

    def add_request(self) -> AddPartitionsToTxnRequest:
        """For all partitions that the coordinator does not know yet."""
        wanted = [partition for partition, known in self._partitions.items() if not known]
        return self._requests.add_partitions(wanted)

    def added(self, response: AddPartitionsToTxnResponse) -> Verdict:
        answers = added_codes(response)
        error = add_error(answers.values())
        if error is not ErrorCode.NONE:
            return self._judge(error)
        self._started = True
        self._partitions.update((partition, True) for partition in answers if partition in self._partitions)
        return Verdict.DONE

    def add_offsets_request(self, group_id: str) -> AddOffsetsToTxnRequest:
        return self._requests.add_offsets(group_id)

    def offsets_added(self, response: AddOffsetsToTxnResponse) -> Verdict:
        verdict = self._judge(error_code(response.error_code))
        self._started = self._started or verdict is Verdict.DONE
        return verdict

    def commit_offsets_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], stamp: ConsumerGroupMetadata
    ) -> TxnOffsetCommitRequest:
        self._started = self._started or self.brokers_add
        return self._requests.commit_offsets(
            stamp.group_id,
            offsets,
            generation_id=stamp.generation_or_epoch,
            member_id=stamp.member_id,
            group_instance_id=stamp.group_instance_id,
        )

    def offsets_committed(self, response: TxnOffsetCommitResponse) -> Verdict:
        return self._judge(commit_error(response))

    def written(self, code: ErrorCode, message: str | None) -> None:
        """A record was not written, or may not have been: the transaction must not commit."""
        fatal = code in (ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING) or fatal:
            self.fail(code, message, fatal=fatal)

    # ---- ending

    def prepare(self) -> PreparedTxnState:
        """Everything is written; only its completion may follow."""
        self.check_open()
        assert self.producer is not None, "an open transaction has a producer id"
        self._go(TransactionState.PREPARED)
        self.prepared = PreparedTxnState(self.producer.producer_id, self.producer.epoch)
        return self.prepared

    def commit(self) -> None:
        """Everything is written. May be called again while the outcome is unknown."""
        self.check()
        if self.state is not TransactionState.COMMITTING:
            self._go(TransactionState.COMMITTING)

    def abort(self) -> None:
        """Raises the error if it is fatal."""
        if self.state is TransactionState.FATAL_ERROR:
            self.check()
        if self.state is not TransactionState.ABORTING:
            self._go(TransactionState.ABORTING)
        self.error = None

    def end_request(self) -> EndTxnRequest | None:
        """None if the coordinator cannot know this transaction: then `ended(None)` ends it."""
        if not self._started:
            return None
        return self._requests.end(committed=self.state is TransactionState.COMMITTING)

    def ended(self, response: EndTxnResponse | None) -> Verdict:
        """After an abort in version 1 the state is Initializing: the epoch has to be bumped, because it is unknown
        which sequences were accepted.
        """
        if response is not None:
            verdict = self._judge(error_code(response.error_code))
            if verdict is not Verdict.DONE:
                return verdict
            if self.brokers_add and response.producer_id >= 0:
                self.producer = ProducerId(response.producer_id, response.producer_epoch)
        bump = self.state is TransactionState.ABORTING and not self.brokers_add and self._started
        self._go(TransactionState.INITIALIZING if bump else TransactionState.READY)
        self._started = False
        return Verdict.DONE

    # ---- inside

    @property
    def _requests(self) -> TransactionRequests:
        assert self.producer is not None, "requests need an initialized producer id"
        return TransactionRequests(self.transactional_id, self.producer)

    def _judge(self, code: ErrorCode) -> Verdict:
        if code is ErrorCode.NONE:
            return Verdict.DONE
        if code in ELSEWHERE:
            return Verdict.ELSEWHERE
        if code.retriable:
            return Verdict.AGAIN
        self.fail(code, None, fatal=code not in ABORTABLE)
        return Verdict.FAILED
