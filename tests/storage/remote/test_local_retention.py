"""The segments that a tiered log keeps on the local disk."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.settings.topic import TopicConfig
from barnabas.storage.remote.local_retention import LocalDeletion, LocalExtent, local_deletion, local_limits

pytestmark = pytest.mark.feature("TS-02")

HOUR_MS = 3_600_000


@dataclass
class Aging:
    base_offset: int
    size_bytes: int
    timestamp: int

    def largest_timestamp(self) -> int:
        return self.timestamp


def hourly(hours: int) -> list[Aging]:
    """A segment an hour with ten offsets, its last record written at the end of the hour."""
    return [Aging(10 * hour, 100, (hour + 1) * HOUR_MS) for hour in range(hours)]


def deleted(config: TopicConfig, now_ms: int, proven: int, start: int = 0, local_start: int = 0) -> LocalDeletion:
    segments = hourly(6)
    return local_deletion(segments, LocalExtent(start, local_start, proven, 60, 60), config, now_ms)


HOURS = TopicConfig(local_retention_ms=2 * HOUR_MS)
BYTES = TopicConfig(local_retention_bytes=250)


def test_minus_two_stands_for_the_limit_of_the_whole_log() -> None:
    assert local_limits(TopicConfig(retention_ms=5, retention_bytes=6)) == (5, 6)
    config = TopicConfig(retention_ms=5, retention_bytes=6, local_retention_ms=3, local_retention_bytes=-1)
    assert local_limits(config) == (3, -1)


def test_only_what_is_remote_leaves_the_disk() -> None:
    now_ms = 6 * HOUR_MS + 1
    assert deleted(HOURS, now_ms, proven=60).deletable == 4
    assert deleted(HOURS, now_ms, proven=40).deletable == 4
    assert deleted(HOURS, now_ms, proven=39).deletable == 3
    assert deleted(HOURS, now_ms, proven=0).deletable == 0
    assert deleted(BYTES, 0, proven=60).deletable == 3
    assert deleted(BYTES, 0, proven=25).deletable == 2


def test_records_deleted_for_all_leave_the_disk_whether_they_are_remote_or_not() -> None:
    forever = TopicConfig(retention_ms=-1)
    assert deleted(forever, 0, proven=0, start=25).deletable == 2
    assert deleted(forever, 0, proven=30, start=0, local_start=30).deletable == 3


def test_the_active_segment_is_closed_when_it_is_due() -> None:
    assert deleted(HOURS, 8 * HOUR_MS, proven=60) == LocalDeletion(5, rolls=False)
    assert deleted(HOURS, 8 * HOUR_MS + 1, proven=60) == LocalDeletion(5, rolls=True)
    assert deleted(HOURS, 8 * HOUR_MS + 1, proven=0) == LocalDeletion(0, rolls=True)


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    extent = LocalExtent(0, 0, 60, 35, 60)
    assert local_deletion(hourly(6), extent, HOURS, 100 * HOUR_MS) == LocalDeletion(3, rolls=False)


@given(
    proven=st.integers(0, 60),
    start=st.integers(0, 60),
    limit=st.integers(-1, 700),
    hours=st.integers(-1, 8),
    now=st.integers(0, 20),
)
def test_no_record_is_deleted_that_is_only_here(proven: int, start: int, limit: int, hours: int, now: int) -> None:
    config = TopicConfig(local_retention_bytes=limit, local_retention_ms=-1 if hours < 0 else hours * HOUR_MS)
    count = deleted(config, now * HOUR_MS, proven, start).deletable
    assert 10 * count <= max(proven, start)
    assert count < 6, "the active segment stays"
