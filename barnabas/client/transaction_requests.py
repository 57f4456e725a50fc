"""Core: the requests of one transactional id to its coordinators, and the errors in their responses.

How partitions become known to the coordinator depends on the finalized transaction.version: below 2 the producer adds
them before it writes; from 2 on brokers add them, and every end of a transaction bumps the epoch (KIP-98, KIP-890). The
versions below keep the meaning of version 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

LAST_WITHOUT_IMPLICIT_ADD = {"produce": 11, "txn_offset_commit": 4, "end_txn": 4}
"""Later versions ask the broker to add the partition, or to bump the epoch."""
LAST_ADD_OF_CLIENTS = 3
"""Later versions of AddPartitionsToTxn are for brokers."""
TWO_PHASE_INIT = 6
"""The version of InitProducerId that has the fields of two-phase commit; Kafka 4.3 does not call it stable."""
NEVER_TIMES_OUT_MS = 2**31 - 1
BROKERS_ADD_FROM = 2
"""The transaction.version from which on brokers add partitions and each end bumps the epoch."""


@dataclass(frozen=True, slots=True)
class ProducerId:
    """A producer's identity at brokers (KIP-98)."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerId(-1, -1)


@dataclass(frozen=True, slots=True)
class TransactionRequests:
    """The requests of one transactional id under one producer id and epoch."""

    transactional_id: str
    producer: ProducerId = NO_PRODUCER

    def init_producer_id(self, timeout_ms: int) -> InitProducerIdRequest:
        """NO_PRODUCER fences the producer that has the id; otherwise only this one gets the next epoch (KIP-360)."""
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
        )

    def init_two_phase(self, *, keep_prepared: bool) -> InitProducerIdRequest:
        """Transactions without a timeout. `keep_prepared` keeps the open transaction (KIP-939)."""
        request = self.init_producer_id(NEVER_TIMES_OUT_MS)
        request.enable2_pc, request.keep_prepared_txn = True, keep_prepared
        return request

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ],
        )

    def add_offsets(self, group_id: str) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            group_id=group_id,
        )

    def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> TxnOffsetCommitRequest:
        """By default not on behalf of a member; the coordinator then does not check who is in the group (KIP-447)."""
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[_committed(index, offsets[TopicPartition(topic, index)]) for index in indexes],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )

    def end(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=committed,
        )


def added_codes(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, ErrorCode]:
    """The error code of each partition in a response of version 3 or below."""
    return {
        TopicPartition(topic.name, answer.partition_index): error_code(answer.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for answer in topic.results_by_partition
    }


def add_error(codes: Iterable[ErrorCode]) -> ErrorCode:
    """The code that says why nothing was added; NONE if all partitions were. The coordinator adds all of them or none,
    and reports OPERATION_NOT_ATTEMPTED for those without an error of their own."""
    failures = [code for code in codes if code is not ErrorCode.NONE]
    causes = [code for code in failures if code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return (causes or failures or [ErrorCode.NONE])[0]


def commit_error(response: TxnOffsetCommitResponse) -> ErrorCode:
    """The first error of a partition, or NONE."""
    codes = [error_code(answer.error_code) for topic in response.topics for answer in topic.partitions]
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)


def transaction_version(features: Iterable[tuple[str, int]]) -> int:
    """The finalized transaction.version in (name, level) pairs; 0 if it is not among them."""
    return next((level for name, level in features if name == "transaction.version"), 0)


def _committed(index: int, committed: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        committed_metadata=committed.metadata,
    )
