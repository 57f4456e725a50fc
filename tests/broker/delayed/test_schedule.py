"""The order in which pending records become due, against a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.delayed import schedule as module
from barnabas.broker.delayed.schedule import Due, Schedule

pytestmark = pytest.mark.feature("RP-12")

times = st.one_of(st.integers(0, 600), st.integers(0, 1 << 20), st.integers(0, 1 << 44))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), times),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("wait"), st.integers(0, 1 << 21)),
        st.tuples(st.just("back"), st.just(0)),
        st.tuples(st.just("set clock back"), st.integers(0, 1 << 21)),
    ),
    max_size=60,
)


def take_all(schedule: Schedule, now_ms: int, most: int = 1_000) -> list[Due]:
    taken: list[Due] = []
    while (wake_ms := schedule.wake_ms()) is not None and wake_ms <= now_ms:
        taken += schedule.take(now_ms, most)
    return taken


def test_records_are_taken_by_time_and_then_by_arrival() -> None:
    schedule = Schedule()
    for arrival, time_ms in enumerate([500, 70_000, 500, 3, 1 << 41, 256]):
        schedule.add(time_ms, arrival)
    assert take_all(schedule, 499) == [(3, 3), (256, 5)]
    assert take_all(schedule, 1 << 40) == [(500, 0), (500, 2), (70_000, 1)]
    assert len(schedule) == 1
    assert take_all(schedule, 1 << 41) == [(1 << 41, 4)]
    assert schedule.wake_ms() is None


def test_a_carried_record_keeps_its_place_among_those_of_its_time() -> None:
    schedule = Schedule()
    schedule.add(500, 9)
    schedule.add(500, 2)
    assert take_all(schedule, 500) == [(500, 2), (500, 9)]


def test_a_late_record_is_taken_next() -> None:
    schedule = Schedule()
    schedule.add(1_000, 0)
    schedule.add(2_000, 1)
    assert take_all(schedule, 1_500) == [(1_000, 0)]
    schedule.add(10, 2)
    assert take_all(schedule, 1_500) == [(10, 2)]


def test_a_record_that_is_added_after_the_clock_was_set_back_waits_for_its_own_time_only() -> None:
    schedule = Schedule()
    schedule.add(9_000, 0)
    assert take_all(schedule, 9_500) == [(9_000, 0)]
    schedule.add(6_000, 1)
    schedule.add(9_100, 2)
    assert take_all(schedule, 5_999) == []
    assert take_all(schedule, 6_000) == [(6_000, 1)]
    assert take_all(schedule, 9_200) == [(9_100, 2)]


def test_records_that_are_given_back_are_first_again() -> None:
    schedule = Schedule()
    for arrival in range(6):
        schedule.add(100, arrival)
    taken = schedule.take(100, 4)
    schedule.give_back(taken)
    assert len(schedule) == 6
    assert [due.arrival_offset for due in take_all(schedule, 100)] == list(range(6))


@given(steps, st.integers(1, 7))
def test_the_schedule_is_a_sorted_list(steps: list[tuple[str, int]], moved_in_a_step: int) -> None:
    module.MOVED_IN_A_STEP, before = moved_in_a_step, module.MOVED_IN_A_STEP  # type: ignore[misc]
    try:
        check_against_a_list(steps)
    finally:
        module.MOVED_IN_A_STEP = before  # type: ignore[misc]


def check_against_a_list(steps: list[tuple[str, int]]) -> None:
    schedule, now_ms = Schedule(), 0
    pending: set[Due] = set()
    taken: list[Due] = []
    for arrival, (step, number) in enumerate(steps):
        if step == "add":
            due = Due(number, arrival)
            pending.add(due)
            schedule.add(*due)
        elif step == "wait":
            now_ms += number
        elif step == "set clock back":
            now_ms = max(0, now_ms - number)
        elif step == "back":
            schedule.give_back(taken)
            pending |= set(taken)
            taken = []
        else:
            taken = schedule.take(now_ms, number)
            assert len(taken) <= number
            assert taken == sorted(taken)
            for due in taken:
                assert due in pending
                assert due.time_ms <= now_ms, "a record was taken before its time"
                pending.remove(due)
        wake_ms = schedule.wake_ms()
        assert len(schedule) == len(pending)
        assert (wake_ms is None) == (not pending)
        if pending:
            assert wake_ms is not None
            assert wake_ms <= max(now_ms, min(pending).time_ms), "a record is due before the schedule wakes"
    rest = take_all(schedule, 1 << 45, 3)
    assert set(rest) == pending
    late = [due for due in rest if due.time_ms > now_ms]
    assert late == sorted(late)
