"""The steps of a transaction against scripted coordinators."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.transaction_requests import ProducerId
from barnabas.pipeline.errors import (
    ConnectionFailed,
    Fenced,
    NotSent,
    OutcomeUnknown,
    TimedOut,
    TookTooLong,
    TransactionError,
)
from barnabas.pipeline.transaction import Transaction
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.pipeline.scripted_cluster import ScriptedCluster

pytestmark = pytest.mark.feature("PL-06")

OFFSETS = {("flights", 0): (7, "seven")}


def given(producer_id: int = 40, epoch: int = 0, code: ErrorCode = ErrorCode.NONE) -> InitProducerIdResponse:
    if code is not ErrorCode.NONE:
        producer_id, epoch = -1, -1
    return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)


def added(*codes: ErrorCode) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate(codes or (ErrorCode.NONE,))
    ]
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(name="flights", results_by_partition=results)]
    )


def offsets_taken(code: ErrorCode = ErrorCode.NONE) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(name="flights", partitions=[TxnOffsetCommitResponsePartition(error_code=code)])
        ]
    )


def features(transaction_version: int) -> ApiVersionsResponse:
    feature = FinalizedFeatureKey(name="transaction.version", max_version_level=transaction_version)
    return ApiVersionsResponse(finalized_features=[feature])


def begun(*answers: Any, timeout_ms: int = 60_000, retry_timeout_ms: int = 5_000) -> tuple[Transaction, Any]:
    """A transaction with an epoch and a partition; `answers` are the next responses."""
    cluster = ScriptedCluster(given(), added(), *answers, retry_timeout_ms=retry_timeout_ms)
    transaction = Transaction(cluster, "spark-sink-q", timeout_ms)
    transaction.begin()
    transaction.add([("flights", 0)])
    return transaction, cluster


def test_only_the_first_init_producer_id_has_no_producer_id() -> None:
    cluster = ScriptedCluster(given(40, 5), given(40, 6))
    transaction = Transaction(cluster, "spark-sink-q", 60_000)
    assert transaction.begin() == ProducerId(40, 5)
    assert transaction.begin() == ProducerId(40, 6)
    first, second = cluster.asked
    assert isinstance(first, InitProducerIdRequest) and isinstance(second, InitProducerIdRequest)
    assert (first.producer_id, first.producer_epoch, first.transaction_timeout_ms) == (-1, -1, 60_000)
    assert (second.producer_id, second.producer_epoch) == (40, 5)


@pytest.mark.parametrize(
    "passing",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_retriable_errors_are_retried_at_every_step(passing: ErrorCode) -> None:
    cluster = ScriptedCluster(
        given(code=passing),
        given(40, 1),
        added(passing),
        added(),
        AddOffsetsToTxnResponse(error_code=passing),
        AddOffsetsToTxnResponse(),
        offsets_taken(passing),
        offsets_taken(),
        features(2),
        EndTxnResponse(error_code=passing),
        EndTxnResponse(producer_id=40, producer_epoch=2),
    )
    transaction = Transaction(cluster, "spark-sink-q", 60_000)
    transaction.begin()
    transaction.add([("flights", 0)])
    transaction.commit("spark-sink-q", OFFSETS)
    assert transaction.producer == ProducerId(40, 2) and transaction.open_ms == 0
    assert not cluster.answers


def test_a_coordinator_that_dies_at_any_step_is_looked_for_again() -> None:
    lost = [NotSent("refused"), ConnectionFailed("reset"), TimedOut("silent")]
    cluster = ScriptedCluster(
        lost[0], given(), lost[1], added(), lost[2], AddOffsetsToTxnResponse(), lost[1], offsets_taken(),
        lost[0], features(0), lost[1], EndTxnResponse(),
    )  # fmt: skip
    transaction = Transaction(cluster, "spark-sink-q", 60_000)
    transaction.begin()
    transaction.add([("flights", 0)])
    transaction.commit("spark-sink-q", OFFSETS)
    assert not cluster.answers


@pytest.mark.parametrize(("finalised", "version"), [(0, 3), (1, 3), (2, 5), (3, 5)])
def test_the_end_bumps_the_epoch_only_if_finalized(finalised: int, version: int) -> None:
    end = EndTxnResponse(producer_id=40, producer_epoch=1) if version == 5 else EndTxnResponse()
    transaction, cluster = begun(AddOffsetsToTxnResponse(), offsets_taken(), features(finalised), end)
    transaction.commit("spark-sink-q", OFFSETS)
    # In these versions no broker adds anything to a transaction by itself.
    assert cluster.versions == [4, 3, 3, 3, None, version]
    assert transaction.producer == ProducerId(40, 1 if version == 5 else 0)


def test_the_offsets_are_committed_by_the_same_producer() -> None:
    transaction, cluster = begun(AddOffsetsToTxnResponse(), offsets_taken(), features(2), EndTxnResponse())
    transaction.commit("spark-sink-q", OFFSETS)
    _, _, adding, committing, _, ending = cluster.asked
    assert adding.group_id == committing.group_id == "spark-sink-q"
    assert (committing.producer_id, committing.producer_epoch) == (40, 0)
    [partition] = committing.topics[0].partitions
    assert (partition.committed_offset, partition.committed_metadata) == (7, "seven")
    assert isinstance(ending, EndTxnRequest) and ending.committed


@pytest.mark.parametrize(
    "code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
)
@pytest.mark.parametrize("step", ["begin", "add", "offsets", "end"])
def test_a_replaced_driver_is_fenced_at_every_step(step: str, code: ErrorCode) -> None:
    with pytest.raises(Fenced, match="another driver"):
        if step == "begin":
            transaction, _ = begun(given(code=code))
            transaction.begin()
        elif step == "add":
            transaction, _ = begun(added(code, ErrorCode.OPERATION_NOT_ATTEMPTED))
            transaction.add([("flights", 0), ("flights", 1)])
        elif step == "offsets":
            transaction, _ = begun(AddOffsetsToTxnResponse(), offsets_taken(code))
            transaction.commit("spark-sink-q", OFFSETS)
        else:
            answers = [AddOffsetsToTxnResponse(), offsets_taken(), features(2), EndTxnResponse(error_code=code)]
            transaction, _ = begun(*answers)
            transaction.commit("spark-sink-q", OFFSETS)


def test_a_timeout_is_not_taken_for_another_driver() -> None:
    fenced = EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
    transaction, _ = begun(AddOffsetsToTxnResponse(), offsets_taken(), features(2), fenced, timeout_ms=1)
    while transaction.open_ms < 1:
        pass
    with pytest.raises(TookTooLong, match=r"transaction\.timeout\.ms is 1"):
        transaction.commit("spark-sink-q", OFFSETS)


def test_a_timeout_above_the_brokers_limit_is_an_error() -> None:
    cluster = ScriptedCluster(given(code=ErrorCode.INVALID_TRANSACTION_TIMEOUT))
    with pytest.raises(TransactionError, match=r"transaction\.max\.timeout\.ms"):
        Transaction(cluster, "spark-sink-q", 10**9).begin()


def test_without_response_to_end_txn_the_outcome_is_unknown_and_the_id_is_kept() -> None:
    silence = [TimedOut("silent")] * 50
    transaction, cluster = begun(
        AddOffsetsToTxnResponse(), offsets_taken(), features(2), *silence, retry_timeout_ms=300
    )
    with pytest.raises(OutcomeUnknown, match="finds the outcome"):
        transaction.commit("spark-sink-q", OFFSETS)
    cluster.answers.clear()
    cluster.answers.append(given(40, 1))
    assert transaction.begin() == ProducerId(40, 1)
    assert (cluster.asked[-1].producer_id, cluster.asked[-1].producer_epoch) == (40, 0)


def test_an_abort_without_begin_sends_nothing() -> None:
    cluster = ScriptedCluster(given())
    transaction = Transaction(cluster, "spark-sink-q", 60_000)
    transaction.begin()
    transaction.abort()
    assert len(cluster.asked) == 1


def test_an_abort_sends_end_txn() -> None:
    transaction, cluster = begun(features(2), EndTxnResponse(producer_id=41, producer_epoch=0))
    transaction.abort()
    assert cluster.asked[-1].committed is False
    assert transaction.producer == ProducerId(41, 0), "the epochs of the id before were used up"
