"""The transactions of a producer: what is legal is a table, what answers mean is a verdict."""

from __future__ import annotations

import pytest

from barnabas.client.errors import IllegalStateException, ProducerFencedException
from barnabas.client.groups.membership import ConsumerGroupMetadata
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.producer.memory_records_builder import ProducerId
from barnabas.client.producer.transaction_manager import (
    TRANSITIONS,
    TransactionManager,
    TransactionState,
    Verdict,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.end_txn import EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

pytestmark = pytest.mark.feature("TX-12")

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
STAMP = ConsumerGroupMetadata("g", "m", 3, None)


def ready(version: int) -> TransactionManager:
    manager = TransactionManager("t", 60_000)
    manager.initialize(version)
    assert manager.init_request().producer_id == -1
    assert manager.initialized(InitProducerIdResponse(producer_id=7, producer_epoch=0)) is Verdict.DONE
    return manager


def begun(version: int) -> TransactionManager:
    manager = ready(version)
    manager.begin()
    return manager


def added(**codes: ErrorCode) -> AddPartitionsToTxnResponse:
    """`p0=…` is the code of partition 0 of topic a."""
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=int(name[1:]), partition_error_code=code)
        for name, code in codes.items()
    ]
    topic = AddPartitionsToTxnTopicResult(name="a", results_by_partition=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def test_the_moves_are_those_of_the_text() -> None:
    assert sum(len(targets) for targets in TRANSITIONS.values()) == 25


def test_in_version_1_a_partition_is_added_before_it_is_written_to() -> None:
    manager = begun(1)
    assert not manager.writes_to(A0)
    assert not manager.writes_to(A1)
    request = manager.add_request()
    assert request.v3_and_below_topics[0].partitions == [0, 1]
    assert manager.added(added(p0=ErrorCode.NONE, p1=ErrorCode.NONE)) is Verdict.DONE
    assert manager.writes_to(A0) and manager.is_member(A1)
    manager.commit()
    end = manager.end_request()
    assert end is not None and end.committed
    assert manager.ended(EndTxnResponse()) is Verdict.DONE
    assert manager.state is TransactionState.READY
    assert manager.producer == ProducerId(7, 0)
    manager.begin()
    assert not manager.writes_to(A0), "each transaction adds it again"


@pytest.mark.feature("TX-05")
def test_in_version_2_brokers_add_and_each_end_bumps_the_epoch() -> None:
    manager = begun(2)
    assert manager.writes_to(A0)
    manager.commit()
    assert manager.ended(EndTxnResponse(producer_id=7, producer_epoch=1)) is Verdict.DONE
    assert manager.producer == ProducerId(7, 1)
    assert manager.at_most("produce") is None
    assert begun(1).at_most("produce") == 11


def test_a_transaction_of_which_nobody_knows_ends_without_a_request() -> None:
    for version in (1, 2):
        manager = begun(version)
        manager.commit()
        assert manager.end_request() is None
        assert manager.ended(None) is Verdict.DONE
        assert manager.state is TransactionState.READY


@pytest.mark.feature("PR-13")
def test_an_abort_in_version_1_leads_to_a_new_epoch() -> None:
    manager = begun(1)
    manager.writes_to(A0)
    manager.added(added(p0=ErrorCode.NONE))
    manager.written(ErrorCode.REQUEST_TIMED_OUT, "lost")
    assert manager.state is TransactionState.ABORTABLE_ERROR
    with pytest.raises(KafkaError, match="lost"):
        manager.check_open()
    with pytest.raises(KafkaError):
        manager.commit()
    manager.abort()
    end = manager.end_request()
    assert end is not None and not end.committed
    manager.ended(EndTxnResponse())
    assert manager.state is TransactionState.INITIALIZING
    request = manager.init_request()
    assert (request.producer_id, request.producer_epoch) == (7, 0)
    manager.initialized(InitProducerIdResponse(producer_id=7, producer_epoch=1))
    manager.begin()


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.feature("TX-02")
def test_a_fenced_producer_is_at_its_end(code: ErrorCode) -> None:
    manager = begun(2)
    manager.writes_to(A0)
    manager.commit()
    assert manager.ended(EndTxnResponse(error_code=code)) is Verdict.FAILED
    for step in (manager.check_open, manager.begin, manager.commit, manager.abort):
        with pytest.raises(ProducerFencedException):
            step()


def test_retries_and_the_broker_to_ask() -> None:
    manager = begun(1)
    assert manager.offsets_added(AddOffsetsToTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)) is Verdict.AGAIN
    elsewhere = AddOffsetsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert manager.offsets_added(elsewhere) is Verdict.ELSEWHERE
    loading = AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert manager.offsets_added(loading) is Verdict.AGAIN
    assert manager.end_request() is None
    assert manager.offsets_added(AddOffsetsToTxnResponse()) is Verdict.DONE
    assert manager.end_request() is not None


def test_the_most_specific_error_of_refused_partitions_counts() -> None:
    manager = begun(1)
    answer = added(p0=ErrorCode.OPERATION_NOT_ATTEMPTED, p1=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert manager.added(answer) is Verdict.AGAIN
    answer = added(p0=ErrorCode.OPERATION_NOT_ATTEMPTED, p1=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert manager.added(answer) is Verdict.FAILED
    assert manager.error is not None and manager.error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.feature("TX-04")
@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_offsets_of_a_member_that_left_the_group_abort(code: ErrorCode) -> None:
    manager = begun(2)
    request = manager.commit_offsets_request({A0: OffsetAndMetadata(5), A1: OffsetAndMetadata(6, 3, "note")}, STAMP)
    assert (request.group_id, request.member_id, request.generation_id) == ("g", "m", 3)
    committed = [
        (part.committed_offset, part.committed_leader_epoch, part.committed_metadata)
        for part in request.topics[0].partitions
    ]
    assert committed == [(5, -1, ""), (6, 3, "note")]
    answers = [
        TxnOffsetCommitResponsePartition(partition_index=0),
        TxnOffsetCommitResponsePartition(partition_index=1, error_code=code),
    ]
    topic = TxnOffsetCommitResponseTopic(name="a", partitions=answers)
    assert manager.offsets_committed(TxnOffsetCommitResponse(topics=[topic])) is Verdict.FAILED
    assert manager.state is TransactionState.ABORTABLE_ERROR
    manager.abort()
    assert manager.end_request() is not None


def test_forbidden_transitions() -> None:
    manager = TransactionManager("t", 1)
    for step in (manager.begin, manager.check_open, manager.commit, manager.abort):
        with pytest.raises(IllegalStateException):
            step()
    manager.initialize(2)
    assert (
        manager.initialized(InitProducerIdResponse(error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)) is Verdict.FAILED
    )
    assert manager.state is TransactionState.FATAL_ERROR
    with pytest.raises(KafkaError, match="INVALID_TRANSACTION_TIMEOUT"):
        manager.begin()
