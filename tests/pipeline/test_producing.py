"""The tasks of the sink: partitions, batches, sequences, and reported failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.producer.partitioner import partition_for_key
from barnabas.client.transaction_requests import ProducerId
from barnabas.pipeline import producing
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError, TimedOut
from barnabas.pipeline.partition_writer import PartitionWriter, ProducingSettings, rows_of, sizes_of
from barnabas.pipeline.producing import ProduceTask
from barnabas.pipeline.routing import TARGET, Router, Targets, murmur2
from barnabas.pipeline.task_reports import TaskAttempt
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.murmur import murmur2 as murmur2_of_one
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import decode_records
from tests.examples import examples

pytestmark = pytest.mark.feature("PL-03")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FEW = settings(max_examples=examples(30))
KEYS = st.lists(st.none() | st.binary(max_size=70), max_size=40)


class Leader(BlockingCluster):
    """Appends batches as a leader does, with scripted errors."""

    def __init__(self, *codes: ErrorCode, max_bytes: int = 1 << 30) -> None:
        super().__init__("127.0.0.1:1")
        self.codes = list(codes)
        self.max_bytes = max_bytes
        self.batches: list[tuple[BatchHeader, list[Any]]] = []
        self.requests: list[ProduceRequest] = []
        self.end_offset = 100
        self.producers: list[ProducerState] = []

    def leader_call(self, topic: str, partition: int, request: Any, *, version: int | None = None) -> Any:
        if isinstance(request, DescribeProducersRequest):
            answered = PartitionResponse(partition_index=partition, active_producers=self.producers)
            return DescribeProducersResponse(topics=[TopicResponse(name=topic, partitions=[answered])])
        assert version == 9, "in later versions leaders add to transactions by themselves"
        [data] = request.topic_data[0].partition_data
        batch = bytes(data.records)
        header = read_header(batch)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if len(batch) > self.max_bytes:
            code = ErrorCode.MESSAGE_TOO_LARGE
        answer = PartitionProduceResponse(index=partition, error_code=code, base_offset=-1)
        if code is ErrorCode.NONE:
            self.requests.append(request)
            self.batches.append((header, decode_records(batch)))
            answer.base_offset = self.end_offset
            self.end_offset += header.records_count
        return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[answer])])

    @property
    def values(self) -> list[bytes]:
        return [record.value for _, records in self.batches for record in records]


def rows(count: int, size: int = 10) -> list[Any]:
    return [(0, 1000 + index, b"k%d" % index, b"v" * size, ()) for index in range(count)]


def writer(cluster: Leader, **changes: Any) -> PartitionWriter:
    given = ProducingSettings("127.0.0.1:1", **changes)
    return PartitionWriter(cluster, given, ("flights", 1), ProducerId(40, 3), "spark-sink-q")


# ---- which partition


@FEW
@given(KEYS, st.integers(0, 5), st.integers(0, 5))
def test_keys_hash_as_in_every_kafka_client(keys: list[bytes | None], before: int, after: int) -> None:
    whole = pa.array([b"before"] * before + keys + [b"after"] * after, pa.binary())
    hashes = murmur2(whole.slice(before, len(keys)))
    assert [int(hashed) for hashed, key in zip(hashes, keys, strict=True) if key is not None] == [
        murmur2_of_one(key) for key in keys if key is not None
    ]


@FEW
@given(KEYS, st.integers(1, 20), st.integers(0, 100), st.data())
def test_a_row_goes_to_its_partition_or_by_its_key_or_with_its_batch(
    keys: list[bytes | None], count: int, turn: int, data: st.DataObject
) -> None:
    given = data.draw(st.lists(st.none() | st.integers(0, count - 1), min_size=len(keys), max_size=len(keys)))
    batch = pa.RecordBatch.from_pydict(
        {"key": pa.array(keys, pa.binary()), "value": keys, "partition": pa.array(given, pa.int32())}
    )
    routed = Router(Targets({"flights": count}), "flights").route(batch, turn)
    expected = [
        partition if partition is not None else turn % count if key is None else partition_for_key(key, count)
        for key, partition in zip(keys, given, strict=True)
    ]
    assert routed.column(TARGET).to_pylist() == expected
    assert routed.schema.names == ["key", "value", TARGET]


def test_rows_of_many_topics_go_to_targets_that_are_numbered_in_order() -> None:
    targets = Targets({"b": 3, "a": 2})
    assert list(targets) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"1", b"2", b"3"], "topic": ["b", "a", "b"], "partition": pa.array([2, 1, 0], pa.int32())}
    )
    assert Router(targets, None).route(batch, 0).column(TARGET).to_pylist() == [4, 1, 2]


@pytest.mark.parametrize(
    ("column", "line"),
    [
        ({"partition": pa.array([0, 3], pa.int32())}, "must be 0 to 2; got 3"),
        ({"partition": pa.array([-1, 0], pa.int32())}, "must be 0 to 2; got -1"),
        ({"topic": ["flights", None]}, "a row has no topic"),
        ({"topic": ["flights", "gates"]}, "topic gates does not exist"),
    ],
)
def test_a_row_without_a_valid_partition_is_an_error(column: dict[str, Any], line: str) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], **column})
    with pytest.raises(PipelineError, match=line):
        Router(Targets({"flights": 3}), None if "topic" in column else "flights").route(batch, 0)


# ---- records


def test_a_row_becomes_a_record() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "key": [b"k", None],
            "value": [None, b"v"],
            "timestamp": pa.array([7, None], pa.int64()),
            "headers": pa.array([[{"key": "h", "value": None}, {"key": "h", "value": b"2"}], None], HEADERS),
        }
    )
    assert rows_of(batch, 99) == [(0, 7, b"k", None, (("h", None), ("h", b"2"))), (0, 99, None, b"v", ())]


@FEW
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=300),
            st.none() | st.binary(max_size=300),
            st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=3),
            st.integers(0, 2**62),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_no_row_takes_more_of_a_batch_than_was_reckoned(given: list[Any]) -> None:
    headers = [None if row[2] is None else [{"key": key, "value": value} for key, value in row[2]] for row in given]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([row[0] for row in given], pa.binary()),
            "value": pa.array([row[1] for row in given], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array([row[3] for row in given], pa.int64()),
        }
    )
    records = rows_of(batch, 0)
    assert len(build_batch(records)) - BATCH_HEADER_BYTES <= int(np.sum(sizes_of(batch, records)))


# ---- batches


@FEW
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(100, 3000))
def test_sequences_count_from_0_without_a_gap_however_rows_come(parts: list[int], batch_bytes: int) -> None:
    cluster = Leader()
    sending = writer(cluster, batch_bytes=batch_bytes)
    expected = []
    for number, part in enumerate(parts):
        values = [b"%d-%d" % (number, row) for row in range(part)]
        expected += values
        sending.append([(0, 0, None, value, ()) for value in values], np.array([40 + len(value) for value in values]))
    sending.flush()
    assert cluster.values == expected
    sequence = 0
    for header, records in cluster.batches:
        assert (header.base_sequence, header.producer_id, header.producer_epoch) == (sequence, 40, 3)
        assert header.is_transactional and header.size_bytes <= max(batch_bytes, 200)
        sequence += len(records)
    assert (sending.records, sending.first_offset, sending.last_offset) == (sequence, 100, 99 + sequence)


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    cluster = Leader()
    sending = writer(cluster, batch_bytes=500)
    given = [*rows(3), *rows(1, 5_000), *rows(3)]
    sending.append(given, np.array([40 + len(row[2]) + len(row[3]) for row in given]))
    sending.flush()
    assert [len(records) for _, records in cluster.batches] == [3, 1, 3]


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_is_written(compression: Compression) -> None:
    cluster = Leader()
    sending = writer(cluster, compression=compression)
    sending.append(rows(50), np.full(50, 60))
    sending.flush()
    [(header, records)] = cluster.batches
    assert header.compression == compression and len(records) == 50
    assert cluster.requests[0].transactional_id == "spark-sink-q" and cluster.requests[0].acks == -1


def test_a_batch_that_the_topic_finds_too_large_is_halved_until_it_fits() -> None:
    cluster = Leader(max_bytes=400)
    sending = writer(cluster)
    sending.append(rows(64), np.full(64, 60))
    sending.flush()
    assert [record.key for _, records in cluster.batches for record in records] == [row[2] for row in rows(64)]
    assert len(cluster.batches) > 2
    assert [header.base_sequence for header, _ in cluster.batches] == [
        sum(len(records) for _, records in cluster.batches[:index]) for index in range(len(cluster.batches))
    ]


def test_a_record_above_max_message_bytes_is_an_error() -> None:
    sending = writer(Leader(max_bytes=400))
    sending.append(rows(1, 1000), np.array([1060]))
    with pytest.raises(PipelineError, match=r"flights-1: .* max\.message\.bytes .* got one of 1002 bytes"):
        sending.flush()


def test_a_retry_after_a_lost_response_does_not_write_twice() -> None:
    sending = writer(Leader(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    sending.append(rows(5), np.full(5, 60))
    sending.flush()
    assert sending.records == 5


# ---- tasks


def task(transactional_id: str | None = "spark-sink-q", **changes: Any) -> ProduceTask:
    return ProduceTask(
        ProducingSettings("127.0.0.1:1"), Targets({"flights": 3}), transactional_id, ProducerId(40, 3), **changes
    )


def taken(monkeypatch: pytest.MonkeyPatch, cluster: Any, place: TaskAttempt) -> None:
    monkeypatch.setattr(producing, "open_cluster", lambda _: cluster)
    monkeypatch.setattr(producing, "current_task_attempt", lambda: place)


def routed(*targets: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%d" % target for target in targets], TARGET: list(targets)})


def test_a_task_reports_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    taken(monkeypatch, Leader(), TaskAttempt(5, 0, 9, 77))
    [reports] = task()([routed(0, 2, 0), routed(2), routed()])
    assert [(each["topic"], each["partition"], each["records"], each["task_id"]) for each in reports.to_pylist()] == [
        ("flights", 0, 2, 77),
        ("flights", 2, 2, 77),
    ]


def test_a_task_without_rows_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    taken(monkeypatch, Leader(), TaskAttempt(5, 0, 9, 77))
    [reports] = task()([])
    assert reports.num_rows == 0


def test_rows_that_may_go_anywhere_go_to_one_partition_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    places = []
    for partition_id in range(3):
        taken(monkeypatch, Leader(), TaskAttempt(partition_id, 0, 9, 77))
        [reports] = task(shift=10)([pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})])
        places += [(each["partition"], each["records"]) for each in reports.to_pylist()]
    assert sorted(places) == [(0, 2), (1, 2), (2, 2)]


def test_a_second_attempt_writes_nothing_and_reports_a_retriable_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Leader()
    taken(monkeypatch, cluster, TaskAttempt(5, 1, 9, 78))
    [reports] = task()([routed(0)])
    [report] = reports.to_pylist()
    assert "was retried" in report["refusal"] and report["retriable"]
    assert not cluster.batches


@pytest.mark.parametrize(
    ("producer_id", "epoch", "last_sequence", "refused"),
    [(40, 3, 7, True), (40, 3, -1, False), (40, 2, 7, False), (41, 3, 7, False)],
)
def test_a_task_that_finds_batches_of_its_epoch_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, producer_id: int, epoch: int, last_sequence: int, refused: bool
) -> None:
    """A repeated stage has first attempts again. Markers, other epochs and other producers do not count."""
    cluster = Leader()
    cluster.producers = [ProducerState(producer_id=producer_id, producer_epoch=epoch, last_sequence=last_sequence)]
    taken(monkeypatch, cluster, TaskAttempt(5, 0, 9, 78))
    [reports] = task()([routed(0)])
    [report] = reports.to_pylist()
    if refused:
        assert "another task wrote to it" in report["refusal"] and report["retriable"]
    assert bool(cluster.batches) is not refused


def test_at_least_once_a_second_attempt_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Leader()
    taken(monkeypatch, cluster, TaskAttempt(5, 1, 9, 78))
    list(task(transactional_id=None)([routed(0)]))
    assert cluster.values == [b"0"]
    assert not cluster.batches[0][0].is_transactional


@pytest.mark.parametrize(
    ("code", "line", "retriable"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, "the driver aborted this batch", False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED", False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "another task wrote to it", True),
    ],
)
def test_an_error_of_the_leader_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, line: str, retriable: bool
) -> None:
    """It is returned, not raised: Spark would retry the task, and then report that failure instead."""
    taken(monkeypatch, Leader(code), TaskAttempt(0, 0, 9, 77))
    [reports] = task()([routed(0)])
    [report] = reports.to_pylist()
    assert line in report["refusal"] and report["retriable"] is retriable and "\n" not in report["refusal"]


def test_a_cluster_that_is_away_for_too_long_leaves_the_batch_to_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Away(Leader):
        def leader_call(self, *_: Any, **__: Any) -> Any:
            raise TimedOut("gave up after 120 s")

    taken(monkeypatch, Away(), TaskAttempt(0, 0, 9, 77))
    [reports] = task()([routed(0)])
    [report] = reports.to_pylist()
    assert report["retriable"] and "120 s" in report["refusal"]
