"""The rules of retention: facts in, a number out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.settings.topic import TopicConfig
from barnabas.storage.retention import Retention
from tests.storage.rig import Rig, append, batch, small_segments

DAY_MS = 86_400_000


@dataclass
class Aging:
    base_offset: int
    size_bytes: int
    timestamp: int

    def largest_timestamp(self) -> int:
        return self.timestamp


def daily(days: int, size_bytes: int = 100) -> list[Aging]:
    """A segment a day, its last record written at the end of that day."""
    return [Aging(10 * day, size_bytes, (day + 1) * DAY_MS) for day in range(days)]


def deletable(segments: list[Aging], config: TopicConfig, now_ms: int, start: int = 0, watermark: int = 10**9) -> int:
    end = 10 * len(segments)
    return Retention(segments, min(watermark, end), end).apply(config, start, now_ms)


@pytest.mark.feature("CR-01")
def test_seven_daily_segments_with_a_week_of_retention() -> None:
    config = TopicConfig(retention_ms=7 * DAY_MS)
    assert deletable(daily(7), config, 8 * DAY_MS) == 0
    assert deletable(daily(7), config, 8 * DAY_MS + 1) == 1
    assert deletable(daily(7), config, 10 * DAY_MS + 1) == 3


@pytest.mark.feature("CR-01")
def test_one_day_of_retention_with_segments_of_five_days_keeps_five_days() -> None:
    """A segment is deleted as a whole, when its last record is old enough."""
    segments = [Aging(0, 100, 5 * DAY_MS), Aging(10, 100, 10 * DAY_MS)]
    config = TopicConfig(retention_ms=DAY_MS)
    assert deletable(segments, config, 6 * DAY_MS) == 0
    assert deletable(segments, config, 6 * DAY_MS + 1) == 1


@pytest.mark.feature("CR-01")
def test_by_size_the_oldest_go_as_long_as_the_rest_is_no_less_than_the_limit() -> None:
    def after(limit: int) -> int:
        return deletable(daily(10), TopicConfig(retention_bytes=limit, retention_ms=-1), 0)

    assert [after(limit) for limit in (-1, 5000, 1000, 999, 901, 900, 850, 800)] == [0, 0, 0, 0, 0, 1, 1, 2]


@pytest.mark.feature("CR-01")
def test_nothing_above_the_high_watermark_goes() -> None:
    config = TopicConfig(retention_ms=0)
    assert deletable(daily(5), config, 10**12, watermark=29) == 2
    assert deletable(daily(5), config, 10**12, watermark=30) == 3
    assert deletable(daily(5), config, 10**12) == 5


def test_an_empty_active_segment_stays() -> None:
    segments = [*daily(3), Aging(30, 0, 0)]
    assert Retention(segments, 30, 30).apply(TopicConfig(retention_ms=0), 0, 10**12) == 3


@pytest.mark.feature("CR-01", "CR-14")
def test_without_delete_in_the_policy_only_what_is_before_the_start_goes() -> None:
    for policy in (frozenset(["compact"]), frozenset[str]()):
        config = TopicConfig(retention_ms=0, retention_bytes=0, cleanup_policy=policy)
        assert deletable(daily(5), config, 10**12) == 0
        assert deletable(daily(5), config, 10**12, start=19) == 1
        assert deletable(daily(5), config, 10**12, start=20) == 2
        assert deletable(daily(5), config, 10**12, start=50) == 4, "the active one is rolled first by other rules"


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), min_size=1, max_size=12),
    st.integers(-1, 300),
    st.integers(-1, 100),
    st.integers(0, 120),
    st.integers(0, 130),
)
def test_it_deletes_only_an_eligible_prefix(
    shape: list[tuple[int, int]], retention_bytes: int, retention_ms: int, start: int, watermark: int
) -> None:
    segments = [Aging(10 * place, size, time) for place, (size, time) in enumerate(shape)]
    config = TopicConfig(retention_bytes=retention_bytes, retention_ms=retention_ms)
    now_ms = 100
    count = deletable(segments, config, now_ms, start, watermark)
    total = sum(segment.size_bytes for segment in segments)
    for place, segment in enumerate(segments[:count]):
        end = 10 * (place + 1)
        assert end <= watermark
        total -= segment.size_bytes
        allowed = (
            end <= start
            or (retention_bytes >= 0 and total >= retention_bytes)
            or (retention_ms >= 0 and now_ms - segment.timestamp > retention_ms)
        )
        assert allowed


@pytest.mark.feature("CR-01")
def test_records_without_time_age_by_their_file() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=200, retention_ms=1000))
    for _ in range(6):
        append(log, batch(1, timestamp=-1))
    log.set_high_watermark(6)
    assert log.delete_old_segments(rig.now_ms + 1000) == 0
    assert log.delete_old_segments(rig.now_ms + 1001) == 3
