"""A stream reader without Spark: logs in memory, and offsets as JSON."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark")

from barnabas.client.metadata import TopicPartition
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.reading_options import read_options
from tests.pipeline.log_cluster import LogCluster, MemoryLog

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def log_of(count: int, start: int = 0) -> MemoryLog:
    log = MemoryLog(start=start)
    if count:
        log.append(*[b"v"] * count)
    return log


def reader(cluster: LogCluster, **given: Any) -> Any:
    from barnabas.pipeline.source import StreamReader

    options = {"bootstrap": "127.0.0.1:1", "startingOffsets": "earliest"} | given
    if "subscribePattern" not in options:
        options["subscribe"] = "a"
    made = StreamReader(read_options(options, streaming=True))
    made._cluster = cluster
    return made


def latest(made: Any, start: dict[str, Any], limit: int | None = None) -> dict[str, Any]:
    """Calls the reader like Spark, which keeps offsets as text."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    asked = ReadAllAvailable() if limit is None else ReadMaxRows(limit)
    found = made.latestOffset(json.loads(json.dumps(start)), asked)
    return json.loads(json.dumps(found))


def tasks(made: Any, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int, int]]:
    return [(each.topic, each.partition, each.from_offset, each.until_offset) for each in made.partitions(start, end)]


def test_batches_follow_each_other_up_to_the_end() -> None:
    cluster = LogCluster({"a": [log_of(10), log_of(4)]})
    made = reader(cluster)
    start = made.initialOffset()
    first = latest(made, start, 7)
    assert tasks(made, start, first) == [("a", 0, 0, 5), ("a", 1, 0, 2)]
    second = latest(made, first, 7)
    assert tasks(made, first, second) == [("a", 0, 5, 10), ("a", 1, 2, 4)]
    assert latest(made, second, 7) == second, "the same text says that there is nothing more"
    assert tasks(made, second, second) == []


def test_a_stream_begins_with_new_records_by_default() -> None:
    cluster = LogCluster({"a": [log_of(10)]})
    assert reader(cluster, startingOffsets="latest").initialOffset()["a"] == {"0": 10}
    assert reader(cluster, startingOffsets='{"a": {"0": 3}}').initialOffset()["a"] == {"0": 3}


@pytest.mark.feature("PL-06")
def test_new_partitions_are_read_from_their_beginning_and_a_batch_that_is_run_again_is_the_same() -> None:
    cluster = LogCluster({"a": [log_of(10)]})
    made = reader(cluster)
    start = latest(made, made.initialOffset())
    cluster.logs[A1] = log_of(9, start=4)
    end = latest(made, start)
    assert tasks(made, start, end) == [("a", 1, 4, 9)]
    cluster.logs[A1].append(b"more")
    assert tasks(reader(cluster), start, end) == [("a", 1, 4, 9)], "a restarted driver plans the same"
    after = latest(made, end)
    assert tasks(made, end, after) == [("a", 1, 9, 10)]


def test_a_pattern_takes_in_topics_as_they_are_made() -> None:
    cluster = LogCluster({"a": [log_of(1)]})
    made = reader(cluster, subscribePattern="[ab]")
    start = latest(made, made.initialOffset())
    cluster.ids["b"] = b"b" * 16
    cluster.logs[B0] = log_of(2)
    assert tasks(made, start, latest(made, start)) == [("b", 0, 0, 2)]


@pytest.mark.feature("PL-04")
def test_available_now_ends_at_the_offsets_of_its_start() -> None:
    cluster = LogCluster({"a": [log_of(10)]})
    made = reader(cluster)
    start = made.initialOffset()
    made.prepareForTriggerAvailableNow()
    cluster.logs[A0].append(b"late")
    cluster.logs[A1] = log_of(5)
    end = latest(made, start, 100)
    assert end["a"] == {"0": 10}
    assert latest(made, end, 100) == end
    # An older run has read further already, and planned it.
    assert latest(made, {**end, "a": {"0": 11}}, 100)["a"] == {"0": 11}


@pytest.mark.feature("PL-04")
def test_lost_offsets_are_an_error_or_skipped_and_nothing_is_read_again() -> None:
    cluster = LogCluster({"a": [log_of(10)]})
    made, brave = reader(cluster), reader(cluster, failOnDataLoss="false")
    start = made.initialOffset()
    end = latest(made, start)
    cluster.logs[A0].start = 4
    with pytest.raises(PipelineError, match="a-0: offsets 0 to 3 were deleted"):
        made.partitions(start, end)
    assert tasks(brave, start, end) == [("a", 0, 4, 10)]
    cluster.logs[A0] = log_of(3)
    assert latest(brave, end)["a"] == {"0": 10}, "a log that is shorter than it was is not read from its beginning"


@pytest.mark.feature("PL-06")
def test_a_recreated_topic_is_an_error_or_read_from_its_beginning() -> None:
    cluster = LogCluster({"a": [log_of(10)]})
    made, brave = reader(cluster), reader(cluster, failOnDataLoss="false")
    start = made.initialOffset()
    end = latest(made, start)
    cluster.ids["a"], cluster.logs[A0] = b"n" * 16, log_of(3)
    for ask in (lambda: latest(made, end), lambda: made.partitions(start, end)):
        with pytest.raises(PipelineError, match="topic a was deleted and recreated"):
            ask()
    recreated = latest(brave, end)
    assert tasks(brave, end, recreated) == [("a", 0, 0, 3)]
    assert latest(brave, recreated) == recreated
    del cluster.logs[A0]
    with pytest.raises(PipelineError, match="topic a was deleted before"):
        latest(made, end)
    assert tasks(brave, start, end) == []


def test_the_checkpoint_of_another_query_is_an_error() -> None:
    cluster = LogCluster({"a": [log_of(1)], "b": [log_of(1)]})
    made = reader(cluster)
    of_b = {"b": {"0": 1}}
    with pytest.raises(PipelineError, match="reads b, but this one reads a; give it another checkpointLocation"):
        latest(reader(cluster, failOnDataLoss="false"), of_b)
    with pytest.raises(PipelineError, match="another checkpointLocation"):
        latest(made, {"/data/flights.csv": {"rows": 3}})
    both = {"a": {"0": 0}, **of_b}
    with pytest.raises(PipelineError, match="reads a, b, but this one reads a"):
        latest(made, both)


def test_a_reader_travels_without_its_connections() -> None:
    made = reader(LogCluster({"a": [log_of(1)]}))
    travelled = pickle.loads(pickle.dumps(made))
    assert travelled._cluster is None
    assert travelled.options == made.options


def test_rows_of_other_columns_are_refused() -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    from barnabas.pipeline.source import BarnabasDataSource

    source = BarnabasDataSource({"Bootstrap": "127.0.0.1:1", "subscribe": "a"})
    with pytest.raises(PipelineError, match="the source has the columns key, value, topic"):
        source.reader(StructType([StructField("year", IntegerType())]))
