"""Copies of a compacted log differ: which of them is read, whatever leaders publish, and in whatever order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.at_once import at_once
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.remote.compacted_copy import CompactedCopy, decode_copy
from barnabas.storage.remote.expiry import ExpiryFacts, expire
from barnabas.storage.remote.metadata_records import decode, encode
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import MetadataRecord, RemoteSegment, SegmentState, SegmentUpdate
from tests.storage.remote.remote_rig import (
    DELETED,
    DELETING,
    FINISHED,
    KEY,
    moved,
    number_of,
    numbers,
    segment,
    segment_id,
)

pytestmark = pytest.mark.feature("TS-04", "CR-03")


def copy_of(number: int, start: int, end: int, epoch: int = 1, cleaned_to: int = 1_000) -> RemoteSegment:
    whole = segment(number, start, end, {0: start})
    return replace(whole, custom_metadata=CompactedCopy(epoch, cleaned_to).encode())


def finished(number: int, epoch: int = 1, cleaned_to: int = 1_000, at_ms: int = 0) -> SegmentUpdate:
    return SegmentUpdate(KEY, segment_id(number), at_ms, FINISHED, 1, CompactedCopy(epoch, cleaned_to).encode())


def known(*records: MetadataRecord) -> PartitionSegments:
    """All of them have an effect."""
    segments = PartitionSegments(KEY)
    segments.is_complete = True
    for record in records:
        assert isinstance(record, RemoteSegment | SegmentUpdate)
        assert segments.apply(record), record
    return segments


def read_at(segments: PartitionSegments, *offsets: int) -> list[int | None]:
    return [number_of(segments.segment_for(0, offset)) for offset in offsets]


def superseded(segments: PartitionSegments) -> list[int]:
    return sorted(numbers([each for each, _ in segments.superseded()]))


def test_the_copy_that_was_finished_later_is_read() -> None:
    segments = known(copy_of(1, 0, 99), copy_of(2, 0, 99), finished(1))
    assert (read_at(segments, 0, 99), superseded(segments)) == ([1, 1], [])
    segments.apply(finished(2))
    assert (read_at(segments, 0, 99), superseded(segments)) == ([2, 2], [1])


def test_one_record_replaces_a_group_and_nothing_brings_it_back() -> None:
    segments = known(copy_of(1, 0, 99), finished(1), copy_of(2, 100, 199), finished(2), copy_of(3, 0, 199))
    assert read_at(segments, 0, 150, 199) == [1, 2, 2]
    segments.apply(finished(3))
    assert (read_at(segments, 0, 150, 199), superseded(segments)) == ([3, 3, 3], [1, 2])
    segments.apply(finished(1))
    assert read_at(segments, 0) == [3], "its record was written twice"
    segments.apply(moved(3, DELETING))
    assert read_at(segments, 0, 150) == [None, None]
    segments.apply(moved(1, DELETING))
    segments.apply(moved(1, DELETED))
    assert superseded(segments) == [2]


def test_a_copy_within_a_longer_one_is_never_read() -> None:
    segments = known(copy_of(1, 0, 199), finished(1), copy_of(2, 100, 199), finished(2))
    assert (read_at(segments, 150), superseded(segments)) == ([1], [2])


def test_an_earlier_leader_has_no_say_once_a_later_one_has_copied() -> None:
    segments = known(copy_of(1, 0, 99, epoch=3), copy_of(2, 0, 99, epoch=4), finished(2, epoch=4))
    assert not segments.apply(finished(1, epoch=3))
    assert not segments.apply(copy_of(4, 100, 199, epoch=3))
    assert not segments.apply(segment(5, 0, 199)), "nor has one that does not know that the topic is compacted"
    assert segments.state_of(segment_id(1)) is SegmentState.COPY_SEGMENT_STARTED
    assert read_at(segments, 0) == [2]
    assert segments.apply(copy_of(6, 100, 199, epoch=5))
    assert not segments.apply(finished(2, epoch=4, cleaned_to=2_000))
    assert segments.apply(moved(1, DELETING)), "the leader removes what is left of it"


def test_a_record_may_change_what_a_copy_says_of_itself() -> None:
    segments = known(copy_of(1, 0, 99, cleaned_to=100), finished(1, cleaned_to=100))
    assert segments.apply(finished(1, epoch=2, cleaned_to=300))
    found = segments.segment_for(0, 50)
    assert found is not None
    assert decode_copy(found.custom_metadata) == CompactedCopy(2, 300)
    assert segments.finished_bytes == 100


def test_a_segment_that_is_read_in_one_of_its_epochs_stays() -> None:
    both = replace(copy_of(1, 0, 99), leader_epochs=((0, 0), (1, 50)))
    first = replace(copy_of(2, 0, 49), leader_epochs=((0, 0),))
    segments = known(both, finished(1), first, finished(2))
    assert number_of(segments.segment_for(1, 60)) == 1
    assert superseded(segments) == []
    rest = replace(copy_of(3, 50, 99), leader_epochs=((1, 50),))
    assert segments.apply(rest)
    assert segments.apply(finished(3))
    assert superseded(segments) == [1]


def test_a_replaced_segment_is_deleted_when_late_readers_are_done() -> None:
    segments = known(copy_of(1, 0, 99), finished(1), copy_of(2, 0, 99), finished(2, at_ms=5_000))
    facts = {"epochs": [(0, 0)], "log_start_offset": 0, "log_end_offset": 500, "only_local_bytes": 0}
    forever = {"retention_ms": -1, "retention_bytes": -1, "superseded_kept_ms": 1_000}

    def deleted(now_ms: int) -> list[int]:
        expiry = at_once(expire(segments, ExpiryFacts(**facts, **forever, now_ms=now_ms)))  # type: ignore[arg-type]
        return numbers(list(expiry.delete.values()))

    assert deleted(5_999) == []
    assert deleted(6_000) == [1]


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 8), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=12
    )
)
def test_an_offset_that_was_readable_stays_so_and_its_copy_is_never_older(
    copies: list[tuple[int, int, int, int]],
) -> None:
    """Copies begin in their order and are finished in any other."""
    segments, order = PartitionSegments(KEY), list[tuple[int, int]]()
    epochs = {number: epoch for number, (_, _, epoch, _) in enumerate(copies)}
    for number, (start, length, epoch, delay) in enumerate(copies):
        segments.apply(copy_of(number, start, start + length - 1, epoch))
        order.append((number + delay, number))
    before: dict[int, int] = {}
    for _, number in sorted(order):
        took_effect = segments.apply(finished(number, epochs[number]))
        assert took_effect == (epochs[number] == segments.newest_copier_epoch)
        for offset in range(24):
            found = segments.segment_for(0, offset)
            assert (found is not None) or offset not in before
            if found is not None:
                assert epochs[number_of(found) or 0] >= epochs.get(before.get(offset, -1), 0)
                before[offset] = number_of(found) or 0
        dead = set(superseded(segments))
        assert dead.isdisjoint({number_of(segments.segment_for(0, offset)) for offset in range(24)})


def test_the_records_are_kafkas_and_keep_what_a_copy_says_of_itself() -> None:
    for record in (copy_of(7, 5, 99, epoch=3, cleaned_to=120), finished(7, epoch=3, cleaned_to=120)):
        assert decode(encode(record)) == record


def test_custom_metadata_of_others_says_nothing() -> None:
    assert decode_copy(None) is None
    assert decode_copy(b"another plug-in") is None
    assert decode_copy(CompactedCopy(3, 5).encode()) == CompactedCopy(3, 5)


def test_after_an_unclean_election_a_copy_is_clean_only_up_to_where_its_leader_was() -> None:
    epochs = LeaderEpochs([(2, 0), (5, 60)])
    assert CompactedCopy(2, 100).valid_to(epochs, 200) == 60
    assert CompactedCopy(3, 100).valid_to(epochs, 200) == 60
    assert CompactedCopy(5, 100).valid_to(epochs, 200) == 100
    assert CompactedCopy(7, 100).valid_to(epochs, 200) == 100
    assert CompactedCopy(7, 300).valid_to(epochs, 200) == 200
