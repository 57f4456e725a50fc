"""Which remote segments of a compacted log are cleaned again, and in which groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.runtime.at_once import at_once
from barnabas.settings.topic import TopicConfig
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.remote.compacted_copy import CompactedCopy
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.recleaning import LogState, Row, epochs_of, groups_of, readable_row
from barnabas.storage.remote.segment import RemoteSegment, SegmentUpdate
from tests.storage.remote.remote_rig import FINISHED, KEY, numbers, segment, segment_id

pytestmark = pytest.mark.feature("TS-05", "CR-04")


def copied(*segments: tuple[RemoteSegment, int]) -> PartitionSegments:
    """Copies with the offsets up to which they are clean, in the order in which they were finished."""
    known = PartitionSegments(KEY)
    for each, cleaned_to in segments:
        custom_metadata = CompactedCopy(1, cleaned_to).encode()
        assert known.apply(replace(each, custom_metadata=custom_metadata))
        assert known.apply(SegmentUpdate(KEY, each.segment_id, 0, FINISHED, 1, custom_metadata))
    return known


def row(segments: PartitionSegments, *epochs: tuple[int, int], start: int = 0, end: int = 1_000) -> Row:
    return at_once(readable_row(segments, LogState(LeaderEpochs(epochs or [(0, 0)]), start, end)))


def parts(found: Row) -> list[tuple[int, int]]:
    return [(numbers([part.segment])[0], part.end_offset) for part in found.parts]


def test_copies_since_the_last_time_are_dirty() -> None:
    found = row(copied((segment(1, 0, 99), 200), (segment(2, 100, 199), 200), (segment(3, 200, 299), 300)))
    assert parts(found) == [(1, 100), (2, 200), (3, 300)]
    assert (found.cleaned_to, found.end_offset) == (200, 300)
    assert numbers([part.segment for part in found.dirty_parts]) == [3]
    assert found.dirty_ratio == pytest.approx(1 / 3)
    assert found.is_worth_it(TopicConfig(min_cleanable_dirty_ratio=0.3))
    assert not found.is_worth_it(TopicConfig(min_cleanable_dirty_ratio=0.5))


def test_nothing_is_dirty_if_all_of_it_was_cleaned_before_it_was_copied() -> None:
    found = row(copied((segment(1, 0, 99), 400), (segment(2, 100, 199), 400)))
    assert found.dirty_ratio == 0
    assert not found.is_worth_it(TopicConfig(min_cleanable_dirty_ratio=0.0))
    assert not row(PartitionSegments(KEY)).is_worth_it(TopicConfig(min_cleanable_dirty_ratio=0.0))


def test_a_copy_of_a_log_that_was_not_compacted_is_dirty() -> None:
    known = PartitionSegments(KEY)
    known.apply(segment(1, 0, 99))
    known.apply(SegmentUpdate(KEY, segment_id(1), 0, FINISHED, 1))
    assert (row(known).cleaned_to, row(known).dirty_ratio) == (0, 1.0)


def test_readers_see_a_part_of_segments_that_overlap() -> None:
    found = row(copied((segment(1, 0, 150), 151), (segment(2, 100, 199, {0: 100}), 200)))
    assert parts(found) == [(1, 100), (2, 200)]
    [group] = groups_of(found.parts, 1)
    assert len(group) == 2, "the one that replaces them must cover both"


def test_the_row_ends_where_segments_do_not_belong_to_the_log() -> None:
    known = copied((segment(1, 0, 99), 100), (segment(2, 100, 199, {0: 100}), 200), (segment(3, 200, 299), 300))
    assert parts(row(known, (0, 0), (2, 150))) == [(1, 100)], "an election was unclean at offset 150"
    assert parts(row(known, end=199)) == [(1, 100)]
    assert parts(row(copied((segment(1, 0, 99), 100), (segment(3, 200, 299), 300)))) == [(1, 100)], "a gap"


def test_the_row_begins_with_the_segment_that_has_the_log_start() -> None:
    known = copied((segment(1, 0, 99), 100), (segment(2, 100, 199), 200))
    assert parts(row(known, (0, 120), start=120)) == [(2, 200)]


def test_groups_fit_into_a_segment_and_cover_their_epochs() -> None:
    found = row(
        copied(
            (segment(1, 0, 99, {0: 0}), 100),
            (segment(2, 100, 199, {0: 100, 3: 150}), 200),
            (segment(3, 200, 299, {3: 200, 4: 250}), 300),
        ),
        (0, 0),
        (3, 150),
        (4, 250),
    )
    assert [len(group) for group in groups_of(found.parts, 250)] == [2, 1]
    assert [len(group) for group in groups_of(found.parts, 100)] == [1, 1, 1]
    assert epochs_of(groups_of(found.parts, 300)[0]) == ((0, 0), (3, 150), (4, 250))
    assert epochs_of(groups_of(found.parts, 100)[2]) == ((3, 200), (4, 250))
