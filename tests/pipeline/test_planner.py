"""Tasks of offset ranges, and the size of micro-batches."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.metadata import TopicPartition
from barnabas.pipeline.planner import OffsetRange, limited, ranges_between, split
from tests.examples import examples

A, B, C = (TopicPartition("flights", index) for index in range(3))

some_ranges = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), max_size=5).map(
    lambda pairs: [
        OffsetRange(TopicPartition("flights", index), start, start + size) for index, (start, size) in enumerate(pairs)
    ]
)


def test_ranges_between_starts_and_ends() -> None:
    assert ranges_between({A: 0, B: 5, C: 9}, {C: 3, B: 5, A: 2}) == [OffsetRange(A, 0, 2)]


def test_one_task_reads_one_partition_unless_more_are_wanted() -> None:
    ranges = [OffsetRange(A, 0, 900), OffsetRange(B, 100, 200)]
    assert split(ranges) == ranges
    assert split(ranges, min_partitions=2) == ranges
    assert [each.size for each in split(ranges, min_partitions=5)] == [225] * 4 + [100]
    assert [each.size for each in split(ranges, max_records=300)] == [300, 300, 300, 100]
    assert len(split(ranges, min_partitions=20, max_records=300)) == 20


@settings(max_examples=examples(50))
@given(some_ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 400))
def test_a_split_loses_nothing_and_doubles_nothing(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(ranges, min_partitions, max_records)
    assert all(piece.size > 0 for piece in pieces)
    for partition, of_partition in itertools.groupby(pieces, key=lambda piece: piece.partition):
        together = list(of_partition)
        [whole] = [each for each in ranges if each.partition == partition]
        assert (together[0].from_offset, together[-1].until_offset) == whole[1:]
        assert all(one.until_offset == other.from_offset for one, other in itertools.pairwise(together))
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)
    if min_partitions is not None and ranges:
        assert len(pieces) >= min(min_partitions, sum(each.size for each in ranges))


@pytest.mark.feature("PL-04")
def test_a_limited_batch_takes_of_each_partition_its_share() -> None:
    assert limited({A: 0, B: 0, C: 0}, {A: 1000, B: 100, C: 0}, 110) == {A: 100, B: 10, C: 0}
    assert limited({A: 0, B: 7}, {A: 10, B: 17}, None) == {A: 10, B: 17}


@settings(max_examples=examples(50))
@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1),
    st.integers(1, 150),
)
def test_limited_batches_come_to_the_end_and_none_is_too_large(
    logs: dict[TopicPartition, tuple[int, int]], max_rows: int
) -> None:
    position = {partition: start for partition, (start, _) in logs.items()}
    ends = {partition: start + size for partition, (start, size) in logs.items()}
    while position != ends:
        after = limited(position, ends, max_rows)
        taken = {partition: after[partition] - position[partition] for partition in ends}
        assert all(each >= 0 for each in taken.values())
        assert 0 < sum(taken.values()) <= max_rows
        position = after
    assert limited(position, ends, max_rows) == ends


def test_a_log_that_became_shorter_is_not_read_again() -> None:
    assert limited({A: 50}, {A: 30}, 10) == {A: 50}
