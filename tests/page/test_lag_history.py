"""Lags of groups over time: what is kept, what is forgotten, and the rates between two samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.group_views.progress import Progress
from barnabas.page.lag_history import INTERVAL_MS, KEPT_MS, MOST_GROUPS, MOST_SAMPLES, MOST_TOPICS, GroupLag, LagHistory

pytestmark = pytest.mark.feature("OB-03")

START_MS = 1_763_750_000_000


def flights(partition: int, committed: int | None, end: int | None, topic: str = "flights") -> Progress:
    lag = None if committed is None or end is None else end - committed
    return Progress(topic, partition, committed, end, lag)


def test_rates_are_those_since_the_sample_before() -> None:
    group = GroupLag(START_MS)
    group.add(START_MS, [flights(0, 100, 150), flights(1, None, 40)])
    group.add(START_MS + 10_000, [flights(0, 130, 250), flights(1, 10, 60), flights(0, 5, 5, "bookings")])
    first, second = group.samples
    assert (first.lag, first.written, first.read) == (50, None, None)
    assert (second.lag, second.written, second.read) == (170, 12.0, 3.0)
    bookings, about_flights = group.topics
    assert (bookings.topic, bookings.lag, bookings.written, bookings.read) == ("bookings", 0, None, None)
    assert (about_flights.partitions, about_flights.lag, about_flights.written) == (2, 170, 12.0)


def test_offsets_that_went_back_are_no_progress() -> None:
    group = GroupLag(START_MS)
    group.add(START_MS, [flights(0, 100, 150)])
    group.add(START_MS + INTERVAL_MS, [flights(0, 0, 20)])
    assert (group.samples[-1].written, group.samples[-1].read) == (0, 0)


def test_a_sample_too_early_is_left_out_and_one_after_the_clock_went_back_is_not() -> None:
    group = GroupLag(START_MS)
    group.add(START_MS, [flights(0, 1, 2)])
    group.add(START_MS + INTERVAL_MS - 1, [flights(0, 1, 3)])
    assert [it.at_ms for it in group.samples] == [START_MS]
    group.add(START_MS - 60_000, [flights(0, 1, 4)])
    assert [it.at_ms for it in group.samples] == [START_MS, START_MS - 60_000]
    assert group.samples[-1].written is None


@given(st.lists(st.integers(0, KEPT_MS), max_size=MOST_SAMPLES + 50), st.integers(1, MOST_TOPICS + 10))
def test_a_group_is_bounded_in_samples_and_topics(steps_ms: Sequence[int], topics: int) -> None:
    group, at_ms = GroupLag(START_MS), START_MS
    for step_ms in steps_ms:
        at_ms += step_ms
        group.add(at_ms, [flights(0, 0, 5, f"topic-{number}") for number in range(topics)])
    shown = group.to_json()
    assert len(shown["samples"]) <= MOST_SAMPLES
    times = [it[0] for it in shown["samples"]]
    assert all(later - earlier >= INTERVAL_MS for earlier, later in pairwise(times))
    if steps_ms:
        assert len(shown["topics"]) + shown["topics_left_out"] == topics
        assert len(shown["topics"]) <= MOST_TOPICS


def test_groups_that_nobody_looks_at_are_forgotten() -> None:
    history = LagHistory()
    history.open("early", START_MS)
    for number in range(MOST_GROUPS - 1):
        history.open(f"group-{number}", START_MS + 1_000)
    history.open("early", START_MS + 2_000)
    history.open("one-more", START_MS + 3_000)
    assert history.get("group-0") is None and history.get("early") is not None
    assert history.due(START_MS + 3_000 + KEPT_MS) == ["one-more"]


def test_a_group_is_due_until_it_was_sampled() -> None:
    history = LagHistory()
    history.open("etl", START_MS).add(START_MS, [flights(0, 1, 2)])
    assert history.due(START_MS + INTERVAL_MS - 1) == []
    assert history.due(START_MS + INTERVAL_MS) == ["etl"]
