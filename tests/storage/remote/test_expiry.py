"""Which remote segments a leader deletes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.at_once import at_once
from barnabas.storage.remote.expiry import ABANDONED_AFTER_MS, Expiry, ExpiryFacts, expire
from barnabas.storage.remote.partition_segments import PartitionSegments
from tests.storage.remote.remote_rig import DELETING, copied, moved, numbers, segment, segment_id

pytestmark = pytest.mark.feature("TS-07")

HOUR_MS = 3_600_000
ALL = {"epochs": [(0, 0)], "log_start_offset": 0, "log_end_offset": 1000, "only_local_bytes": 0}
FOREVER = {"retention_ms": -1, "retention_bytes": -1, "now_ms": 100 * HOUR_MS}


def hourly(hours: int = 5) -> PartitionSegments:
    """A segment an hour with a hundred offsets and bytes, its last record written at the end of the hour."""
    starts = range(0, 100 * hours, 100)
    return copied(
        *(segment(at // 100, at, at + 99, {0: at}, time_ms=(at // 100 + 1) * HOUR_MS) for at in starts)
    )


def expired(segments: PartitionSegments, **facts: Any) -> Expiry:
    return at_once(expire(segments, ExpiryFacts(**{**ALL, **FOREVER, **facts})))


def deleted(segments: PartitionSegments, **facts: Any) -> list[int]:
    return numbers(list(expired(segments, **facts).delete.values()))


def test_without_limits_everything_is_kept() -> None:
    assert expired(hourly()) == Expiry(0)


def test_by_age_a_segment_goes_when_its_last_record_is_too_old() -> None:
    expiry = expired(hourly(), retention_ms=2 * HOUR_MS, now_ms=4 * HOUR_MS + 1)
    assert (numbers(list(expiry.delete.values())), expiry.log_start_offset) == ([0, 1], 200)
    assert deleted(hourly(), retention_ms=2 * HOUR_MS, now_ms=4 * HOUR_MS) == [0]
    assert expiry.delete_bytes == 200


def test_by_size_what_is_only_local_counts_too() -> None:
    assert deleted(hourly(), retention_bytes=500) == []
    assert deleted(hourly(), retention_bytes=450) == []
    assert deleted(hourly(), retention_bytes=400) == [0]
    assert deleted(hourly(), retention_bytes=400, only_local_bytes=150) == [0, 1]
    assert deleted(hourly(), retention_bytes=0) == [0, 1, 2, 3, 4]


def test_segments_below_the_log_start_go() -> None:
    expiry = expired(hourly(), epochs=[(0, 250)], log_start_offset=250)
    assert (numbers(list(expiry.delete.values())), expiry.log_start_offset) == ([0, 1], 250)


def test_the_log_start_stays_before_a_segment_that_is_kept() -> None:
    """A young segment lies before an old one: records may have any time."""
    segments = copied(segment(0, 0, 99, time_ms=90 * HOUR_MS), segment(1, 100, 199, {0: 100}, time_ms=0))
    assert expired(segments, retention_ms=20 * HOUR_MS) == Expiry(0)


def test_two_copies_of_the_same_records_count_once() -> None:
    segments = copied(segment(0, 0, 99), segment(1, 0, 199, size_bytes=200))
    assert deleted(segments, retention_bytes=200) == []
    assert deleted(segments, retention_bytes=199) == []
    assert deleted(segments, retention_bytes=0) == [1, 0]


def test_segments_of_epochs_that_the_log_does_not_have_are_no_part_of_it() -> None:
    """The leader of epoch 1 was deposed at offset 150, but has copied what it wrote behind: that is neither counted nor
    deleted for its age, and goes when the log begins in a later epoch."""
    segments = copied(
        segment(0, 0, 99, {0: 0}, time_ms=HOUR_MS),
        segment(1, 100, 199, {1: 100}, time_ms=HOUR_MS),
        segment(2, 100, 179, {1: 100, 2: 150}, time_ms=HOUR_MS),
    )
    lineage = [(0, 0), (1, 100), (2, 150)]
    expiry = expired(segments, epochs=lineage, retention_ms=2 * HOUR_MS)
    assert (numbers(list(expiry.delete.values())), expiry.log_start_offset) == ([0, 2], 180)
    assert deleted(segments, epochs=lineage, retention_bytes=200) == []
    assert deleted(segments, epochs=[(2, 180)], log_start_offset=180) == [2, 0, 1]


def test_a_copy_under_way_is_left_alone_until_it_was_given_up() -> None:
    segments = hourly(2)
    segments.apply(segment(7, 200, 299, {0: 200}, begun_ms=1_000))
    now_ms = 1_000 + ABANDONED_AFTER_MS
    assert deleted(segments, now_ms=now_ms) == []
    assert deleted(segments, now_ms=now_ms + 1) == [7]
    assert deleted(segments, now_ms=now_ms + 1, being_copied=[segment_id(7)]) == []


def test_a_deletion_that_was_not_finished_is_repeated() -> None:
    segments = hourly()
    segments.apply(moved(3, DELETING))
    assert deleted(segments) == [3]


def test_without_epochs_nothing_is_known_and_nothing_deleted() -> None:
    assert expired(hourly(), epochs=[], retention_ms=0, retention_bytes=0) == Expiry(0)


def test_steps_are_short() -> None:
    """A hundred thousand segments take some hundred steps."""
    segments = copied(*(segment(number, number, number, {0: number}) for number in range(5_000)))
    facts = ExpiryFacts(**{**ALL, **FOREVER, "log_end_offset": 10_000, "retention_bytes": 100})
    steps = expire(segments, facts)
    assert sum(1 for _ in steps) >= 2 * 5_000 // 500


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    local=st.integers(0, 60),
    limit=st.integers(0, 200),
    hours=st.integers(-1, 9),
    start=st.integers(0, 60),
)
def test_as_much_is_kept_as_the_limits_want_and_without_a_gap(
    sizes: list[int], local: int, limit: int, hours: int, start: int
) -> None:
    segments = copied(
        *(
            segment(place, 10 * place, 10 * place + 9, {0: 10 * place}, size_bytes=size, time_ms=place * HOUR_MS)
            for place, size in enumerate(sizes)
        )
    )
    expiry = expired(
        segments,
        epochs=[(0, start)],
        log_start_offset=start,
        only_local_bytes=local,
        retention_bytes=limit,
        retention_ms=-1 if hours < 0 else hours * HOUR_MS,
        now_ms=10 * HOUR_MS,
    )
    gone = numbers(list(expiry.delete.values()))
    assert gone == list(range(len(gone))), "only from the front"
    below = [place for place in range(len(sizes)) if 10 * place + 9 < start]
    assert set(below) <= set(gone)
    due = gone[len(below) :]
    if due:
        assert expiry.log_start_offset == max(start, 10 * due[-1] + 10)
    kept = sum(sizes[len(gone) :]) + local
    for place in reversed(due):
        is_old = hours >= 0 and place * HOUR_MS < (10 - hours) * HOUR_MS
        kept += sizes[place]
        assert is_old or kept > limit or kept - sizes[place] >= limit, "it was deleted for a reason"
