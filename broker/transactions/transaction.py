"""Core: one transactional id: its state, its legal transitions, and the checks of requests.

A `Transaction` is an immutable value. A step returns the next value, which holds once its record is in the log. Reading
the record back gives an equal value, so a new coordinator continues exactly where the old one stopped. Timers, markers
and answers belong to the machine (`machine.py`).

KIP-98, KIP-360 (bumping epochs), KIP-890 (transactions version 2: each end of a transaction bumps the epoch, so that
late messages cannot enter the next one), KIP-939 (a prepared transaction of a two-phase commit is kept, and *claimed*
by the next producer, which completes it under a producer id and epoch of its own).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any

from barnabas.broker.coordinator.outcome import CoordinatorRecord, ProducerStamp
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from barnabas.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TIMESTAMP = -1

MAX_EPOCH = 32767
EXHAUSTED_EPOCH = MAX_EPOCH - 1
"""The last epoch that a producer is given; one more is reserved to fence it."""

BUMPS_EPOCH = 2
"""transaction.version from which each end of a transaction bumps the epoch."""

NEVER_TIMES_OUT_MS = 2_147_483_647
"""Timeout of transactions with an external coordinator (KIP-939)."""

TopicPartition = tuple[str, int]


class TransactionState(IntEnum):
    """Numbers as in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Name in ListTransactions, such as `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState

LEGAL_PREVIOUS: dict[TransactionState, tuple[TransactionState, ...]] = {
    _S.EMPTY: (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT),
    _S.ONGOING: (_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT),
    _S.PREPARE_COMMIT: (_S.ONGOING,),
    # From a state without a transaction: version 2 aborts an empty one to bump the epoch.
    _S.PREPARE_ABORT: (_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT),
    _S.COMPLETE_COMMIT: (_S.PREPARE_COMMIT,),
    _S.COMPLETE_ABORT: (_S.PREPARE_ABORT,),
    _S.DEAD: (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT),
    _S.PREPARE_EPOCH_FENCE: (_S.ONGOING,),
}
"""States from which each state can be reached; no other step is legal. Dead is a tombstone in the log, and an epoch
fence goes on to PrepareAbort within the same step, so neither ever occurs in a record.
"""

PREPARED = (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
"""The result is decided and its markers are being written: nothing else may happen."""
COMPLETED = (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
AT_REST = (_S.EMPTY, *COMPLETED)
"""States without an open transaction."""


class IllegalStep(Exception):
    """Internal error: the transition is not in the table."""


class EndStep(Enum):
    """Effect of an EndTxn."""

    END = "end"
    END_NOTHING = "end nothing"
    """No transaction is open; an empty one is aborted to bump the epoch (version 2)."""
    REPEATED = "repeated"
    """A retry of a request that has taken effect."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The durable state of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    """-1 until a producer is given one."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Partitions that get a marker at the end."""
    started_ms: int = NO_TIMESTAMP
    """Wall time of the first partition; -1 before the first transaction of this producer."""
    updated_ms: int = NO_TIMESTAMP
    """Wall time of the last step; the id expires by it."""
    previous_producer_id: int = NO_PRODUCER_ID
    """Producer id of the last step; differs from `producer_id` right after the id changed."""
    next_producer_id: int = NO_PRODUCER_ID
    """While prepared: the producer id afterwards, if it changes. While ongoing: the id of the producer that claimed it.
    """
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch that belongs to `next_producer_id`; -1 is 0, as Kafka 4.3 writes it when a producer id is exhausted."""
    transaction_version: int = 0
    """Protocol of the transaction: from `BUMPS_EPOCH` on, its end bumps the epoch."""

    # -- queries

    @property
    def producer(self) -> ProducerStamp:
        return ProducerStamp(self.producer_id, self.producer_epoch)

    @property
    def is_two_phase(self) -> bool:
        """An external coordinator decides about its transactions (KIP-939)."""
        return self.timeout_ms == NEVER_TIMES_OUT_MS

    @property
    def is_claimed(self) -> bool:
        """It is open, and a later producer is to complete it."""
        return self.state is TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def client(self) -> ProducerStamp:
        """Producer id and epoch of the producer that may end the transaction."""
        return self._next_producer if self.is_claimed else self.producer

    @property
    def _next_producer(self) -> ProducerStamp:
        return ProducerStamp(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def exhausted(self) -> bool:
        """No producer may get a higher epoch than this one."""
        return self.client.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def commits(self) -> bool:
        """While prepared or complete: whether it commits."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def producer_afterwards(self) -> ProducerStamp:
        """While prepared: producer id and epoch once the markers are written."""
        return self.producer if self.next_producer_id == NO_PRODUCER_ID else self._next_producer

    def timed_out(self, wall_ms: int) -> bool:
        if self.state is not TransactionState.ONGOING or self.is_two_phase:
            return False
        return self.started_ms + self.timeout_ms < wall_ms

    def ended_by(self, producer: ProducerStamp) -> bool:
        """True if the end of the transaction bumped `producer`'s epoch to the current one (version 2)."""
        if self.state not in COMPLETED or self.transaction_version < BUMPS_EPOCH:
            return False
        if producer.producer_id == self.producer_id:
            return producer.producer_epoch + 1 == self.producer_epoch
        changed_over = producer.producer_id == self.previous_producer_id and self.producer_epoch == 0
        return changed_over and producer.producer_epoch == EXHAUSTED_EPOCH

    # -- steps

    def to(self, state: TransactionState, **changes: Any) -> Transaction:
        """The next value; every step of every transaction goes through this check."""
        if self.state not in LEGAL_PREVIOUS[state]:
            raise IllegalStep(f"{self.transactional_id!r}: {self.state.label} to {state.label}")
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)

    def given_to(self, producer: ProducerStamp, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer gets this id and epoch, which fences lower epochs."""
        return self.to(
            TransactionState.EMPTY,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def claimed_by(self, producer: ProducerStamp, now_ms: int) -> Transaction:
        """A producer that did not open the transaction is to complete it; earlier ones are fenced. Its partitions know
        it under the old producer id and epoch, which the markers need.
        """
        return self.to(
            TransactionState.ONGOING,
            next_producer_id=producer.producer_id,
            next_producer_epoch=producer.producer_epoch or NO_PRODUCER_EPOCH,
            updated_ms=now_ms,
        )

    def with_partitions(
        self, added: Iterable[TopicPartition], transaction_version: int, now_ms: int
    ) -> Transaction:
        """The transaction begins, or goes on with more partitions."""
        return self.to(
            TransactionState.ONGOING,
            partitions=self.partitions.union(added),
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            transaction_version=transaction_version,
        )

    def fenced(self) -> Transaction:
        """Fences the current epoch. Only an intermediate step on the way to `prepared`, never in the log."""
        return self.to(TransactionState.PREPARE_EPOCH_FENCE, producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH))

    def prepared(
        self, commit: bool, transaction_version: int, now_ms: int, successor: ProducerStamp | None = None
    ) -> Transaction:
        """The result is decided. `successor` is the producer afterwards: required if the transaction was claimed, and
        if version 2 ends an exhausted epoch.
        """
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        epoch = self.producer_epoch
        # The epoch was bumped by the fence; once is enough.
        if transaction_version >= BUMPS_EPOCH and self.state is not TransactionState.PREPARE_EPOCH_FENCE:
            epoch = min(epoch + 1, MAX_EPOCH)
        next_id, next_epoch = successor or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        prepared = self.to(
            state,
            producer_epoch=epoch,
            next_producer_id=next_id,
            next_producer_epoch=next_epoch or NO_PRODUCER_EPOCH,
            # A transaction without partitions begins and ends now.
            started_ms=now_ms if self.state in AT_REST else self.started_ms,
            updated_ms=now_ms,
            transaction_version=transaction_version,
        )
        # A retry of the end is recognised by the producer id that it came with.
        return replace(prepared, previous_producer_id=self.client.producer_id)

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        afterwards = self.producer_afterwards
        completed = self.to(
            TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT,
            producer_id=afterwards.producer_id,
            producer_epoch=afterwards.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            partitions=frozenset(),
            updated_ms=now_ms,
        )
        if self.next_producer_id == NO_PRODUCER_ID:
            return completed
        return replace(completed, previous_producer_id=self.previous_producer_id)

    # -- checks, which raise KafkaError

    def check_adding(self, producer: ProducerStamp) -> None:
        """Check that this producer may add partitions to its transaction, which is not prepared."""
        self._check_producer(producer)
        if self.is_claimed:
            # Its producer may only complete it.
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def check_verifying(self, producer: ProducerStamp) -> None:
        """Check that this producer may verify partitions of its transaction."""
        self._check_producer(producer)
        if self.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _check_producer(self, producer: ProducerStamp) -> None:
        if self.is_claimed and producer == self.producer:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if producer.producer_id != self.client.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer.producer_epoch != self.client.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def check_end(self, producer: ProducerStamp, commit: bool, transaction_version: int) -> EndStep:
        """Effect of this producer's EndTxn."""
        if transaction_version >= BUMPS_EPOCH:
            return self._check_end_with_bump(producer, commit)
        self._check_producer(producer)
        if self.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if self.state is TransactionState.ONGOING:
            return EndStep.END
        if self.state in COMPLETED and commit == self.commits:
            return EndStep.REPEATED
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def _check_end_with_bump(self, producer: ProducerStamp, commit: bool) -> EndStep:
        if self.state in PREPARED:
            # Checked before the epoch, which has been bumped already (KAFKA-18464).
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if self.ended_by(producer):
            if commit == self.commits:
                return EndStep.REPEATED
            # A commit that arrives after the coordinator's own abort: the producer lost its transaction through no
            # fault of its own (KAFKA-20785).
            raise KafkaError(ErrorCode.PRODUCER_FENCED if commit else ErrorCode.INVALID_TXN_STATE)
        self._check_producer(producer)
        if self.state is TransactionState.ONGOING:
            return EndStep.END
        if commit:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return EndStep.END_NOTHING

    # -- the log

    def record(self, feature_level: int) -> CoordinatorRecord:
        """Its record; version 0 has no fields for KIP-890 and KIP-939."""
        needs_fields = self.transaction_version >= BUMPS_EPOCH or self.next_producer_id != NO_PRODUCER_ID
        version = 1 if feature_level >= 1 or needs_fields else 0
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is TransactionState.EMPTY else _by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
        )
        if version >= 1:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.next_producer_epoch = self.next_producer_epoch
            value.client_transaction_version = self.transaction_version
        return CoordinatorRecord(TransactionLogKey(transactional_id=self.transactional_id), value, version)

    def tombstone(self) -> CoordinatorRecord:
        dead = self.to(TransactionState.DEAD)
        return CoordinatorRecord(TransactionLogKey(transactional_id=dead.transactional_id), None)


def read_transaction(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """Parse a record. Raises MalformedMessage."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise MalformedMessage(f"transaction state {value.transaction_status}") from None
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        transaction_version=value.client_transaction_version,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by topic, both sorted."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    return [
        PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic(partitions).items()
    ]
