"""Start and end offsets of a read, and the offsets of a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from barnabas.client.metadata import TopicPartition
from barnabas.pipeline import offsets
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.offsets import StreamOffset
from barnabas.pipeline.planner import OffsetRange
from barnabas.pipeline.reading_options import ReadingOptions, read_options
from tests.pipeline.log_cluster import LogCluster, MemoryLog

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def a_cluster() -> LogCluster:
    logs = [MemoryLog(), MemoryLog()]
    for second in range(5):
        logs[0].append(b"x", b"y", timestamp=1000 * second)
    logs[1].append(b"z", timestamp=500)
    logs[0].start = 2
    logs[0].stable = 8
    return LogCluster({"a": logs, "b": [MemoryLog()]})


def options(**given: Any) -> ReadingOptions:
    return read_options({"bootstrap": "127.0.0.1:1", "subscribe": "a"} | given, streaming=False)


def between(**given: Any) -> dict[TopicPartition, tuple[int, int]]:
    cluster, read = a_cluster(), options(**given)
    partitions = offsets.partitions_of(offsets.find_topics(cluster, read.subscription))
    starts = offsets.starting_offsets(cluster, read, partitions)
    ends = offsets.ending_offsets(cluster, read, partitions)
    return {partition: (starts[partition], ends[partition]) for partition in partitions}


def both(first: int, second: int) -> str:
    return json.dumps({"a": {"0": first, "1": second}})


@pytest.mark.feature("PL-02")
def test_a_batch_is_all_there_is_or_a_range_of_offsets_or_of_time() -> None:
    assert between() == {A0: (2, 10), A1: (0, 1)}
    assert between(startingOffsets=both(4, -2), endingOffsets=both(-1, 1)) == {A0: (4, 10), A1: (0, 1)}
    assert between(startingTimestamp="400", endingTimestamp="2000") == {A0: (2, 4), A1: (0, 1)}
    by_partition = {"startingOffsetsByTimestamp": both(3000, 500), "endingOffsetsByTimestamp": both(4000, 9000)}
    assert between(**by_partition) == {A0: (6, 8), A1: (0, 1)}
    assert between(**{"kafka.isolation.level": "read_committed"})[A0] == (2, 8)


def test_a_time_after_all_records_is_an_error_or_means_the_end() -> None:
    with pytest.raises(PipelineError, match="startingTimestamp: a-1 has no record at or after that time"):
        between(startingTimestamp="600")
    late = between(startingTimestamp="600", startingOffsetsByTimestampStrategy="latest")
    assert late == {A0: (2, 10), A1: (1, 1)}


def test_every_partition_is_named_or_none() -> None:
    with pytest.raises(PipelineError, match=r"must name every partition; a-1 is missing; -2 means earliest"):
        between(startingOffsets='{"a": {"0": 4}}')
    with pytest.raises(PipelineError, match="names a-7, which does not exist"):
        between(startingOffsets='{"a": {"0": 4, "1": 0, "7": 0}}')


def test_topics_are_found_by_name_by_pattern_and_by_partition() -> None:
    cluster = a_cluster()
    find = lambda **given: offsets.find_topics(  # noqa: E731
        cluster, read_options({"bootstrap": "a:1"} | given, streaming=False).subscription
    )
    assert offsets.partitions_of(find(subscribe="b,a")) == [A0, A1, B0]
    assert offsets.partitions_of(find(subscribePattern="b|c")) == [B0]
    assert offsets.partitions_of(find(assign='{"a": [1]}')) == [A1]
    assert find(subscribe="a")["a"].topic_id == cluster.ids["a"]
    with pytest.raises(PipelineError, match="topic nope cannot be read: it does not exist; check the name"):
        find(subscribe="nope")
    with pytest.raises(PipelineError, match="a-4, but a has partitions 0 to 1"):
        find(assign='{"a": [1, 4]}')


@pytest.mark.feature("PL-04")
def test_only_the_ends_of_a_log_show_a_loss() -> None:
    cluster = a_cluster()
    fine = [OffsetRange(A0, 2, 10)]
    assert offsets.without_lost(cluster, fine, True, check_ends=True) == fine
    with pytest.raises(PipelineError, match="a-0: offsets 0 to 1 were deleted, the log begins at 2"):
        offsets.without_lost(cluster, [OffsetRange(A0, 0, 10)], True, check_ends=True)
    with pytest.raises(PipelineError, match="a-0: offsets up to 12 were requested, but the log ends at 10"):
        offsets.without_lost(cluster, [OffsetRange(A0, 2, 12)], True, check_ends=True)
    with pytest.raises(PipelineError, match="a-0: offsets up to 12 were requested, but the log ends at 10"):
        offsets.without_lost(cluster, [OffsetRange(A0, 12, 10)], True, check_ends=True)
    far = [OffsetRange(A0, 0, 12), OffsetRange(A1, 5, 9)]
    assert offsets.without_lost(cluster, far, False, check_ends=True) == fine
    assert offsets.without_lost(cluster, [OffsetRange(A0, 2, 12)], True, check_ends=False) == [OffsetRange(A0, 2, 12)]


@pytest.mark.feature("PL-06")
def test_a_stream_remembers_offsets_topics_and_where_new_partitions_began() -> None:
    offset = StreamOffset({A1: 5, A0: 11, B0: 3}, {"a": b"1" * 16, "b": b"2" * 16}, {B0: 2})
    document = offset.to_json()
    assert document["a"] == {"0": 11, "1": 5}, "as Spark's own source writes it"
    assert json.dumps(document) == json.dumps(StreamOffset.from_json(json.loads(json.dumps(document))).to_json())
    assert StreamOffset.from_json(document) == offset
    assert offset.topics == ["a", "b"]


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    many = StreamOffset({TopicPartition("a", number): 0 for number in (10, 9, 1)})
    assert list(many.to_json()["a"]) == ["1", "9", "10"]


@pytest.mark.parametrize("document", [{"a": 3}, {"a": {"x": 1}}, {"@topicIds": [["a"]]}, {"files": {"0": "x"}}])
def test_the_offset_of_another_source_is_an_error(document: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="another checkpointLocation"):
        StreamOffset.from_json(document)
