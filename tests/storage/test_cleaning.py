"""Choice of the log to clean, its range, and its groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.settings.topic import TopicConfig
from barnabas.storage.cleaning import (
    MOVES,
    CleaningState,
    Event,
    Phase,
    Throttle,
    find_first_dirty_offset,
    measure,
    next_group,
)

NOW_MS = 1_750_000_000_000
COMPACT = TopicConfig(cleanup_policy=frozenset(["compact"]))


@dataclass
class Sized:
    size_bytes: int


@dataclass
class Seg:
    base_offset: int
    size_bytes: int = 100
    youngest_ms: int = NOW_MS - 1000
    oldest_ms: int = NOW_MS - 2000
    offset_index: Sized = field(default_factory=lambda: Sized(8))
    time_index: Sized = field(default_factory=lambda: Sized(12))

    def largest_timestamp(self) -> int:
        return self.youngest_ms

    def first_timestamp(self) -> int:
        return self.oldest_ms


SEGMENTS = [Seg(0), Seg(10), Seg(20), Seg(30)]
"""The last one is active."""


@pytest.mark.feature("CR-04")
def test_the_active_segment_is_never_cleaned() -> None:
    extent = measure(SEGMENTS, 10, 40, COMPACT, NOW_MS)
    assert (extent.end_offset, extent.clean_bytes, extent.dirty_bytes) == (30, 100, 200)
    assert extent.dirty_ratio == pytest.approx(2 / 3)


@pytest.mark.feature("CR-04", "CR-12")
@pytest.mark.parametrize(("stable", "end"), [(30, 30), (29, 20), (20, 20), (19, 10), (9, 0)])
def test_nothing_beyond_the_last_stable_offset_is_cleaned(stable: int, end: int) -> None:
    assert measure(SEGMENTS, 0, stable, COMPACT, NOW_MS).end_offset == end


@pytest.mark.feature("CR-04")
def test_segments_younger_than_min_compaction_lag_wait() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=5000)
    segments = [Seg(0, youngest_ms=NOW_MS - 9000), Seg(10, youngest_ms=NOW_MS - 4000), Seg(20), Seg(30)]
    assert measure(segments, 0, 30, config, NOW_MS).end_offset == 10
    assert measure(segments, 0, 30, config, NOW_MS + 1000).end_offset == 20
    # The clean part was old enough before.
    assert measure(segments, 20, 30, replace(config, min_compaction_lag_ms=500), NOW_MS).end_offset == 30


@pytest.mark.feature("CR-05")
def test_a_log_is_worth_cleaning_above_its_dirty_ratio() -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=0.5)
    assert not measure([Seg(0), Seg(10), Seg(20)], 10, 20, config, NOW_MS).is_worth_it(config)
    assert measure([Seg(0), Seg(10, 101), Seg(20)], 10, 20, config, NOW_MS).is_worth_it(config)
    assert not measure([Seg(0)], 0, 10, config, NOW_MS).is_worth_it(config)


@pytest.mark.feature("CR-05")
def test_after_max_compaction_lag_any_dirt_is_enough() -> None:
    config = replace(COMPACT, max_compaction_lag_ms=1999)
    extent = measure([Seg(0, 10_000), Seg(10), Seg(20)], 10, 20, config, NOW_MS)
    assert extent.overdue_ms == 1
    assert extent.is_worth_it(config)
    assert not measure([Seg(0, 10_000), Seg(10), Seg(20)], 10, 20, config, NOW_MS - 1).is_worth_it(config)
    clean = measure([Seg(0, 10_000), Seg(10)], 10, 10, config, NOW_MS)
    assert not clean.is_worth_it(config), "there is nothing to clean"


@pytest.mark.feature("CR-05")
@pytest.mark.parametrize(
    ("oldest_ms", "lag_ms", "overdue_ms"),
    [
        (NOW_MS - 2000, 1999, 1),
        (NOW_MS - 2000, 2000, 0),
        (NOW_MS - 2000, 2001, 0),
        (NOW_MS + 5000, 2000, 0),
        (1, 2000, NOW_MS - 2001),
        (0, 2000, 0),
        (-1, 2000, 0),
        (1, NOW_MS, 0),
        (1, NOW_MS + 1, 0),
        (1, NOW_MS - 1, 0),
        (1, NOW_MS - 2, 1),
    ],
)
def test_a_cleaning_is_overdue_by_the_age_of_the_oldest_dirty_record(
    oldest_ms: int, lag_ms: int, overdue_ms: int
) -> None:
    """A segment without a timestamp is never overdue."""
    config = replace(COMPACT, max_compaction_lag_ms=lag_ms)
    segments = [Seg(0, oldest_ms=5), Seg(10, oldest_ms=oldest_ms), Seg(20, oldest_ms=NOW_MS), Seg(30, oldest_ms=5)]
    assert measure(segments, 10, 30, config, NOW_MS).overdue_ms == overdue_ms


@pytest.mark.feature("CR-05")
def test_a_segment_that_must_be_compacted_soon_is_closed_soon() -> None:
    assert replace(COMPACT, max_compaction_lag_ms=7).longest_segment_ms == 7
    assert TopicConfig(max_compaction_lag_ms=7).longest_segment_ms == TopicConfig().segment_ms


@pytest.mark.feature("CR-04")
@pytest.mark.parametrize(("cleaned_to", "expected"), [(None, 5), (3, 5), (5, 5), (9, 9), (10, 10), (11, 5)])
def test_where_the_dirty_part_begins(cleaned_to: int | None, expected: int) -> None:
    assert find_first_dirty_offset(cleaned_to, 5, 10) == expected


@pytest.mark.feature("CR-07")
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(1, 1 << 31)), min_size=1, max_size=30),
    st.integers(1, 200),
    st.integers(1, 60),
)
def test_groups_fit_one_segment_and_are_as_large_as_can_be(
    shapes: list[tuple[int, int, int]], segment_bytes: int, index_bytes: int
) -> None:
    segments, base = [], 0
    for size, index, offsets in shapes:
        segments.append(Seg(base, size, offset_index=Sized(index), time_index=Sized(index // 2)))
        base += offsets
    end = base
    rest = segments
    while rest:
        group = list(next_group(rest, end, segment_bytes, index_bytes))
        assert group == rest[: len(group)]
        following = rest[len(group) :]
        group_end = following[0].base_offset if following else end
        if len(group) > 1:
            assert sum(segment.size_bytes for segment in group) <= segment_bytes
            assert sum(segment.offset_index.size_bytes for segment in group) <= index_bytes
            assert not group[-1].size_bytes or group_end - 1 - group[0].base_offset <= 0x7FFF_FFFF
        if following:
            with_next = [*group, following[0]]
            next_end = following[1].base_offset if len(following) > 1 else end
            assert (
                sum(segment.size_bytes for segment in with_next) > segment_bytes
                or sum(segment.offset_index.size_bytes for segment in with_next) > index_bytes
                or next_end - 1 - group[0].base_offset > 0x7FFF_FFFF
            )
        rest = following


@pytest.mark.feature("CR-10")
@pytest.mark.parametrize(("phase", "event"), list(product(Phase, Event)))
def test_every_legal_move_and_no_other(phase: Phase, event: Event) -> None:
    ways = {
        Phase.IDLE: [],
        Phase.CLEANING: [Event.BEGIN],
        Phase.ABORTED: [Event.BEGIN, Event.PAUSE],
        Phase.PAUSED: [Event.PAUSE],
    }
    legal = {
        (Phase.IDLE, Event.BEGIN): Phase.CLEANING,
        (Phase.IDLE, Event.PAUSE): Phase.PAUSED,
        (Phase.CLEANING, Event.END): Phase.IDLE,
        (Phase.CLEANING, Event.PAUSE): Phase.ABORTED,
        (Phase.ABORTED, Event.END): Phase.PAUSED,
        (Phase.PAUSED, Event.PAUSE): Phase.PAUSED,
        (Phase.PAUSED, Event.RESUME): Phase.IDLE,
    }
    assert legal.keys() == MOVES.keys()
    state = CleaningState()
    for step in ways[phase]:
        state.move(step)
    assert state.phase is phase
    if (phase, event) in legal:
        state.move(event)
        assert state.phase is legal[phase, event]
    else:
        with pytest.raises(AssertionError):
            state.move(event)
        assert state.phase is phase


@pytest.mark.feature("CR-10")
def test_each_pause_needs_a_resume() -> None:
    state = CleaningState()
    for pauses in range(1, 4):
        state.move(Event.PAUSE)
        assert (state.phase, state.pauses) == (Phase.PAUSED, pauses)
    for pauses in range(2, -1, -1):
        state.move(Event.RESUME)
        assert (state.phase, state.pauses) == (Phase.PAUSED if pauses else Phase.IDLE, pauses)


@pytest.mark.feature("CR-09", "CR-10")
def test_the_end_of_an_interrupted_cleaning() -> None:
    state = CleaningState()
    state.interrupt()
    assert repr(state) == "IDLE", "nobody cleans: there is nothing to interrupt"
    state.move(Event.BEGIN)
    state.interrupt()
    state.interrupt()
    assert repr(state) == "ABORTED"
    state.finish()
    assert (repr(state), state.pauses) == ("IDLE", 0)


@pytest.mark.feature("CR-07")
def test_the_throttle_keeps_the_average() -> None:
    throttle, now_ms, moved = Throttle(), 0, 0
    while now_ms < 10_000:
        moved += 700
        now_ms += throttle.moved(700, 1000.0, now_ms)
    assert moved == pytest.approx(10_000, rel=0.1)


def test_without_a_limit_nobody_waits() -> None:
    throttle = Throttle()
    assert [throttle.moved(1 << 30, 1.7976931348623157e308, now_ms) for now_ms in range(3)] == [0, 0, 0]
