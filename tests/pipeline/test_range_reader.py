"""A range of a log is read completely: gaps are no loss, losses are errors or accepted, nothing is read twice."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import Isolation
from barnabas.pipeline.columns import Window
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.range_reader import Reading, read_range
from barnabas.protocol.records.batch import set_base_offset_and_epoch
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record
from tests.pipeline.log_cluster import LogCluster, MemoryLog

FLIGHTS = TopicPartition("flights", 0)


def read(cluster: LogCluster, first: int, until: int, **options: Any) -> list[int]:
    reading = Reading(FLIGHTS, Window(first, until), **options)
    return [offset for columns in read_range(cluster, reading) for offset in columns.offsets.tolist()]


def a_log(batches: int = 10, each: int = 10) -> tuple[LogCluster, MemoryLog]:
    log = MemoryLog()
    for _ in range(batches):
        log.append(*[b"v" * 50] * each)
    return LogCluster({"flights": [log]}), log


@pytest.mark.feature("PL-02", "PL-04")
def test_a_range_is_read_to_its_end_and_not_beyond() -> None:
    cluster, _ = a_log()
    assert read(cluster, 0, 100) == list(range(100))
    assert read(cluster, 13, 57) == list(range(13, 57))
    assert read(cluster, 13, 14) == [13]
    assert read(cluster, 13, 13) == []


def test_many_fetches_make_one_range_and_the_last_is_small() -> None:
    cluster, _ = a_log(batches=100)
    assert read(cluster, 5, 990, fetch_bytes=10_000) == list(range(5, 990))
    assert len(cluster.fetches) == cluster.taken_ahead + 1 > 1, "the next is always asked for before one is decoded"
    assert [offset for offset, _ in cluster.fetches] == sorted({offset for offset, _ in cluster.fetches})


def test_a_batch_larger_than_a_fetch_is_read() -> None:
    log = MemoryLog()
    log.append(b"v" * 300_000)
    cluster = LogCluster({"flights": [log]})
    # Brokers of old cut even the first batch.
    whole = cluster.fetch

    def cut(*args: Any, **options: Any) -> Any:
        found = whole(*args, **options)
        return found._replace(records=found.records[: options["max_bytes"]])

    cluster.fetch = cut  # type: ignore[method-assign]
    assert read(cluster, 0, 1, fetch_bytes=70_000) == [0]


def test_a_failed_fetch_ahead_is_repeated() -> None:
    cluster, _ = a_log(batches=100)
    cluster.fetched_ahead = lambda ahead: None  # type: ignore[method-assign]
    assert read(cluster, 0, 1000, fetch_bytes=10_000) == list(range(1000))


@pytest.mark.feature("PL-04")
def test_gaps_of_compaction_are_no_loss() -> None:
    cluster, log = a_log(batches=2)
    log.skip(30)
    log.append(b"a", b"b")
    log.skip(8)
    assert read(cluster, 0, 60) == [*range(20), 50, 51]
    assert read(cluster, 20, 40) == [], "a batch behind the range says that nothing of it comes"
    assert read(cluster, 55, 60) == [], "and so does the end of what can be read"


@pytest.mark.feature("PL-02")
def test_markers_and_aborted_transactions_are_no_loss() -> None:
    log = MemoryLog()
    for producer, committed in ((1, True), (2, False), (1, True)):
        rows = [Record(0, 1, None, b"%d" % producer)] * 3
        log.add(
            build_batch(
                rows, base_offset=log.end, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
            )
        )
        marker = bytearray(build_end_txn_batch(EndTxn(committed, 0), producer, 0, 1))
        set_base_offset_and_epoch(marker, 0, log.end, 0)
        log.add(bytes(marker))
    log.aborted = [(2, 4)]
    cluster = LogCluster({"flights": [log]})
    assert read(cluster, 0, 12, isolation=Isolation.READ_COMMITTED) == [0, 1, 2, 8, 9, 10]
    assert read(cluster, 0, 12) == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert read(cluster, 3, 8, isolation=Isolation.READ_COMMITTED) == []


@pytest.mark.feature("PL-04")
def test_records_deleted_by_retention_are_a_loss_that_may_be_accepted(caplog: pytest.LogCaptureFixture) -> None:
    cluster, log = a_log()
    log.start = 30
    with pytest.raises(PipelineError, match=r"offsets 10 to 29 were deleted.*failOnDataLoss"):
        read(cluster, 10, 50)
    with caplog.at_level(logging.WARNING):
        assert read(cluster, 10, 50, fail_on_data_loss=False) == list(range(30, 50))
    assert "flights-0: offsets 10 to 29 were deleted" in caplog.text
    assert read(cluster, 10, 20, fail_on_data_loss=False) == []


@pytest.mark.feature("PL-04")
def test_a_log_that_ends_too_soon_is_never_read_from_its_beginning() -> None:
    cluster, log = a_log()
    with pytest.raises(PipelineError, match="offsets up to 120 were requested, but the log ends at 100"):
        read(cluster, 90, 120)
    assert read(cluster, 90, 120, fail_on_data_loss=False) == list(range(90, 100))
    log.batches, log.end = log.batches[:2], 20
    with pytest.raises(PipelineError, match="the log ends at 20"):
        read(cluster, 90, 100)
    assert read(cluster, 90, 100, fail_on_data_loss=False) == []


def test_a_new_leader_that_does_not_know_the_end_yet_is_waited_for() -> None:
    cluster, _ = a_log()
    cluster.retry_timeout_ms = 5_000
    whole, hidden = cluster.fetch, [True]

    def late(*args: Any, **options: Any) -> Any:
        found = whole(*args, **options)
        if hidden:
            hidden.pop()
            return found._replace(records=memoryview(b""), high_watermark=40)
        return found

    cluster.fetch = late  # type: ignore[method-assign]
    assert read(cluster, 90, 100) == list(range(90, 100))


def test_a_recreated_and_a_deleted_topic_are_errors() -> None:
    cluster, _ = a_log()
    with pytest.raises(PipelineError, match="was deleted and recreated"):
        read(cluster, 0, 10, topic_id=b"x" * 16)
    assert read(cluster, 0, 10, topic_id=b"x" * 16, fail_on_data_loss=False) == []
    cluster.logs.clear()
    with pytest.raises(PipelineError, match="topic flights was deleted before"):
        read(cluster, 0, 10)


def test_a_damaged_log_is_an_error() -> None:
    cluster, log = a_log()
    log.batches[3] = log.batches[3][:-1] + b"\xff"
    with pytest.raises(PipelineError, match="flights-0: the CRC of the batch at offset 30 is wrong") as caught:
        read(cluster, 0, 100)
    assert "\n" not in caught.value.line
