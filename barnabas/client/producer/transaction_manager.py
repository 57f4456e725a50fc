"""Core: the state of one producer's transactions, the requests that may come next, and the meaning of each response.

    Uninitialized ─► Initializing ─► Ready ─► InTransaction ─► Committing ─► Ready
                          ▲                        │    └────► Aborting ───► Ready
                          └────── Aborting ◄── AbortableError              any ─► FatalError

Beginning a transaction sends nothing. The finalised transaction.version decides how the coordinator learns its
partitions: in version 1 the producer adds each before the first write to it, and bumps its epoch only after an error;
from version 2 on the brokers add them, and every transaction ends with a new epoch (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from barnabas.client.errors import IllegalStateException
from barnabas.client.groups.membership import ConsumerGroupMetadata
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.producer.memory_records_builder import ProducerId
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


class TransactionState(Enum):
    UNINITIALIZED = "Uninitialized"
    INITIALIZING = "Initializing"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    COMMITTING = "CommittingTransaction"
    ABORTING = "AbortingTransaction"
    ABORTABLE_ERROR = "AbortableError"
    FATAL_ERROR = "FatalError"


_S = TransactionState
TRANSITIONS: Mapping[TransactionState, tuple[TransactionState, ...]] = {
    _S.UNINITIALIZED: (_S.INITIALIZING, _S.FATAL_ERROR),
    _S.INITIALIZING: (_S.READY, _S.FATAL_ERROR),
    _S.READY: (_S.UNINITIALIZED, _S.IN_TRANSACTION, _S.FATAL_ERROR),
    _S.IN_TRANSACTION: (_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR),
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

LAST_WITHOUT_IMPLICIT_ADD = {"produce": 11, "txn_offset_commit": 4, "end_txn": 4}
"""In later versions the request makes the broker add the partition, or bump the epoch."""
LAST_ADD_OF_CLIENTS = 3
"""Later versions of AddPartitionsToTxn are for brokers only."""


class TransactionManager:
    """The state of one transactional id."""

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        """The reason for an error state."""
        self.producer: ProducerId | None = None
        self.version = 0
        """The transaction.version in force."""
        self._started = False
        """The coordinator may know this transaction."""
        self._partitions: dict[TopicPartition, bool] = {}
        """Partitions that it writes to; True once the coordinator knows them."""

    def __repr__(self) -> str:
        return f"{self.transactional_id} as {self.producer}: {self.state.value}"

    @property
    def brokers_add(self) -> bool:
        """Whether brokers add partitions and offsets, and each end bumps the epoch."""
        return self.version >= 2

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

    def initialize(self, version: int) -> None:
        """`version` is the finalised transaction.version."""
        self._go(TransactionState.INITIALIZING)
        self.version = version

    def init_request(self) -> InitProducerIdRequest:
        """With the present id, if any: then only this very producer gets the next epoch."""
        had = self.producer or ProducerId(-1, -1)
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=had.producer_id,
            producer_epoch=had.epoch,
        )

    def initialized(self, response: InitProducerIdResponse) -> Verdict:
        verdict = self._judge(error_code(response.error_code))
        if verdict is Verdict.DONE:
            self.producer = ProducerId(response.producer_id, response.producer_epoch)
            self._go(TransactionState.READY)
        return verdict

    # ---- members of the transaction

    def begin(self) -> None:
        self.check()
        self._go(TransactionState.IN_TRANSACTION)
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
        producer = self._of_producer()
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic(wanted).items()
            ],
        )

    def added(self, response: AddPartitionsToTxnResponse) -> Verdict:
        answers = {
            TopicPartition(topic.name, answer.partition_index): error_code(answer.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for answer in topic.results_by_partition
        }
        failures = [code for code in answers.values() if code is not ErrorCode.NONE]
        if failures:
            # The coordinator accepts all or none: OPERATION_NOT_ATTEMPTED says less than the other errors.
            reasons = [code for code in failures if code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
            return self._judge((reasons or failures)[0])
        self._started = True
        self._partitions.update((partition, True) for partition in answers if partition in self._partitions)
        return Verdict.DONE

    def add_offsets_request(self, group_id: str) -> AddOffsetsToTxnRequest:
        producer = self._of_producer()
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )

    def offsets_added(self, response: AddOffsetsToTxnResponse) -> Verdict:
        verdict = self._judge(error_code(response.error_code))
        self._started = self._started or verdict is Verdict.DONE
        return verdict

    def commit_offsets_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], stamp: ConsumerGroupMetadata
    ) -> TxnOffsetCommitRequest:
        producer = self._of_producer()
        self._started = self._started or self.brokers_add
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=stamp.group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=stamp.generation_or_epoch,
            member_id=stamp.member_id,
            group_instance_id=stamp.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[_committed(index, offsets[TopicPartition(topic, index)]) for index in indexes],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )

    def offsets_committed(self, response: TxnOffsetCommitResponse) -> Verdict:
        codes = [error_code(answer.error_code) for topic in response.topics for answer in topic.partitions]
        return self._judge(next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE))

    def written(self, code: ErrorCode, message: str | None) -> None:
        """A record was not written, or may not have been: the transaction must not commit."""
        fatal = code in (ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING) or fatal:
            self.fail(code, message, fatal=fatal)

    # ---- ending

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
        producer = self._of_producer()
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=self.state is TransactionState.COMMITTING,
        )

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

    def _of_producer(self) -> ProducerId:
        assert self.producer is not None, "requests need an initialized producer id"
        return self.producer

    def _judge(self, code: ErrorCode) -> Verdict:
        if code is ErrorCode.NONE:
            return Verdict.DONE
        if code in ELSEWHERE:
            return Verdict.ELSEWHERE
        if code.retriable:
            return Verdict.AGAIN
        self.fail(code, None, fatal=code not in ABORTABLE)
        return Verdict.FAILED


def _committed(index: int, committed: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


def transaction_version(features: Iterable[tuple[str, int]]) -> int:
    """The level from (name, level) of the finalised features; 0 if there is none."""
    return next((level for name, level in features if name == "transaction.version"), 0)
