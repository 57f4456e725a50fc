"""The timing wheel: the textbook example step by step, stories, and a dumb twin."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.timers import MOST_IN_A_TURN, run_timers
from barnabas.broker.timing_wheel import TimerEntry, TimingWheel
from barnabas.runtime.world import World
from tests.examples import examples

pytestmark = pytest.mark.feature("RP-08")


def wheels(wheel: TimingWheel) -> list[str]:
    return wheel.describe().splitlines()


def test_the_example_with_u_1_and_n_3_step_by_step() -> None:
    """Levels of 3, 9 and 27 ms: each wheel turns only when its own tick has passed."""
    ran: list[str] = []
    wheel = TimingWheel(0, size=3)
    assert wheels(wheel) == ["[0,0] [1,1] [2,2]"], "overflow wheels are made on demand"

    wheel.add(0, lambda: ran.append("now"))  # in [c,c]: expired already, runs at once
    assert wheel.advance(0) == 1
    assert ran == ["now"]

    wheel.add(2, lambda: ran.append("level 1"))
    wheel.add(4, lambda: ran.append("level 2"))
    wheel.add(11, lambda: ran.append("level 3"))
    assert wheels(wheel) == [
        "[0,0] [1,1] [2,2]",
        "[0,2] [3,5] [6,8]",
        "[0,8] [9,17] [18,26]",
    ]

    assert wheel.advance(1) == 0  # [0,0] is over and becomes [3,3]; the upper clocks move in units of 3 and 9
    assert wheels(wheel) == [
        "[1,1] [2,2] [3,3]",
        "[0,2] [3,5] [6,8]",
        "[0,8] [9,17] [18,26]",
    ]

    assert wheel.advance(2) == 1
    assert ran[-1] == "level 1"
    assert wheels(wheel)[0] == "[2,2] [3,3] [4,4]"

    assert wheel.next_deadline_ms() == 4, "nobody need wake at the beginning of the bucket [3,5]…"
    assert wheel.advance(3) == 0  # …but who does finds that its entry, due at 4, moves into [4,4] of the lowest wheel
    assert wheels(wheel) == [
        "[3,3] [4,4] [5,5]",
        "[3,5] [6,8] [9,11]",
        "[0,8] [9,17] [18,26]",
    ]
    assert wheel.next_deadline_ms() == 4
    assert wheel.advance(4) == 1
    assert ran[-1] == "level 2"

    assert wheel.next_deadline_ms() == 11
    assert wheel.advance(9) == 0
    assert wheel.next_deadline_ms() == 11, "from [9,17] of the third wheel it went to the lowest, which spans [9,11]"
    assert wheel.advance(11) == 1
    assert ran == ["now", "level 1", "level 2", "level 3"]
    assert wheel.next_deadline_ms() is None


def test_a_long_sleep_runs_everything_in_the_order_of_deadlines() -> None:
    ran: list[int] = []
    wheel = TimingWheel(1_000)
    for deadline_ms in (9_000, 1_001, 60_000, 1_020, 1_019, 1_400, 1_399, 1_401):
        wheel.add(deadline_ms, lambda deadline_ms=deadline_ms: ran.append(deadline_ms))
    wheel.advance(100_000)
    assert ran == [1_001, 1_019, 1_020, 1_399, 1_400, 1_401, 9_000, 60_000]
    assert len(wheel) == 0


def test_a_cancelled_entry_causes_no_wake_up() -> None:
    wheel = TimingWheel(0)
    entry = wheel.add(500, lambda: pytest.fail("it was cancelled"))
    assert wheel.next_deadline_ms() == 500
    entry.cancel()
    entry.cancel()
    assert (len(wheel), wheel.next_deadline_ms()) == (0, None)
    assert wheel.advance(1_000) == 0


def test_a_bucket_emptied_by_cancelling_is_queued_again() -> None:
    ran: list[str] = []
    wheel = TimingWheel(0)
    wheel.add(7, lambda: ran.append("first")).cancel()
    assert wheel.next_deadline_ms() is None
    wheel.add(7, lambda: ran.append("second"))
    assert wheel.next_deadline_ms() == 7
    assert wheel.advance(7) == 1
    assert ran == ["second"]


def test_the_hook_is_called_for_earlier_deadlines_only() -> None:
    rings: list[int | None] = []
    wheel = TimingWheel(0)
    wheel.on_earlier_deadline = lambda: rings.append(wheel.next_deadline_ms())
    wheel.add(10, lambda: None)
    wheel.add(15, lambda: None)
    wheel.add(10, lambda: None)
    wheel.add(3, lambda: None)
    wheel.add(0, lambda: None)
    assert rings == [10, 3, 0]


def test_a_sleeper_past_the_start_of_a_bucket_is_woken_for_earlier_entries_in_it() -> None:
    rings: list[int | None] = []
    wheel = TimingWheel(0)
    wheel.on_earlier_deadline = lambda: rings.append(wheel.next_deadline_ms())
    for deadline_ms in (35, 39, 33, 38, 41, 25):
        wheel.add(deadline_ms, lambda: None)
    assert rings == [35, 33, 25]


def test_a_full_bucket_is_not_searched() -> None:
    wheel = TimingWheel(0)
    for number in range(200):
        wheel.add(30 + number % 5, lambda: None)
    assert wheel.next_deadline_ms() == 20
    assert wheel.advance(20) == 0
    assert wheel.next_deadline_ms() == 30
    assert wheel.advance(34) == 200


def test_a_callback_that_raises_costs_the_others_nothing() -> None:
    ran: list[str] = []

    def fail() -> None:
        raise ValueError("mine alone")

    wheel = TimingWheel(0)
    wheel.add(5, fail)
    wheel.add(5, lambda: ran.append("neighbour"))
    wheel.add(6, lambda: ran.append("later"))
    with pytest.raises(ValueError, match="mine alone"):
        wheel.advance(10)
    wheel.advance(10)
    assert ran == ["neighbour", "later"]


def test_callbacks_may_add_and_cancel() -> None:
    ran: list[str] = []
    wheel = TimingWheel(0)
    victim = wheel.add(8, lambda: ran.append("victim"))

    def first() -> None:
        ran.append("first")
        victim.cancel()
        wheel.add(7, lambda: ran.append("same call"))
        wheel.add(2, lambda: ran.append("overdue"))
        wheel.add(11, lambda: ran.append("too late for this call"))

    wheel.add(5, first)
    wheel.advance(10)
    assert ran == ["first", "overdue", "same call"]
    wheel.advance(11)
    assert ran[-1] == "too late for this call"


@dataclass
class Twin:
    """The promises of a wheel, kept by a list that is sorted when needed."""

    now_ms: int
    waiting: list[tuple[int, int]] = field(default_factory=list)

    def advance(self, now_ms: int) -> list[int]:
        self.now_ms = max(now_ms, self.now_ms)
        due = [item for item in self.waiting if item[0] <= self.now_ms]
        self.waiting = [item for item in self.waiting if item[0] > self.now_ms]
        return [number for _, number in due]


STEPS = st.one_of(
    st.tuples(st.just("add"), st.one_of(st.integers(-5, 70), st.integers(0, 100_000))),
    st.tuples(st.just("advance"), st.one_of(st.integers(0, 30), st.integers(0, 5_000), st.just(None))),
    st.tuples(st.just("cancel"), st.integers(0, 1_000)),
)


@given(
    start_ms=st.integers(0, 10_000_000),
    size=st.sampled_from([2, 3, 20]),
    steps=st.lists(STEPS, max_size=60),
)
@settings(max_examples=examples(300), deadline=None)
def test_the_wheel_does_what_its_dumb_twin_does(
    start_ms: int, size: int, steps: list[tuple[str, int | None]]
) -> None:
    wheel, twin = TimingWheel(start_ms, size=size), Twin(start_ms)
    ran: list[int] = []
    deadlines: dict[int, int] = {}
    entries: list[TimerEntry] = []
    now_ms = start_ms
    for step, value in steps:
        if step == "add":
            assert value is not None
            number = len(entries)
            deadlines[number] = now_ms + value
            entries.append(wheel.add(now_ms + value, lambda number=number: ran.append(number)))
            twin.waiting.append((now_ms + value, number))
        elif step == "cancel" and entries and value is not None:
            victim = value % len(entries)
            entries[victim].cancel()
            twin.waiting = [item for item in twin.waiting if item[1] != victim]
        elif step == "advance":
            before_ms = now_ms
            if value is None:  # as the shell does: exactly to what the wheel asks for
                asked_ms = wheel.next_deadline_ms()
                now_ms = max(now_ms, now_ms if asked_ms is None else asked_ms)
            else:
                now_ms += value
            ran.clear()
            wheel.advance(now_ms)
            assert sorted(ran) == sorted(twin.advance(now_ms))
            in_time = [deadlines[number] for number in ran if deadlines[number] > before_ms]
            assert in_time == sorted(in_time)

        assert len(wheel) == len(twin.waiting)
        asked_ms = wheel.next_deadline_ms()
        assert (asked_ms is None) == (not twin.waiting)
        if asked_ms is not None:
            assert asked_ms <= max(now_ms, min(twin.waiting)[0]), "it would sleep through a deadline"
            assert asked_ms > now_ms or min(twin.waiting)[0] <= now_ms, "it would wake for nothing at once"


class TrioClock:
    def now_ms(self) -> int:
        return int(trio.current_time() * 1000)


def world_on_trio_time() -> World:
    clock = TrioClock()
    return World(None, None, clock, clock, None, None)  # type: ignore[arg-type]


async def test_the_task_is_woken_by_an_earlier_timer(autojump_clock: trio.testing.MockClock) -> None:
    ran: list[tuple[str, float]] = []
    errors: list[Exception] = []
    world = world_on_trio_time()
    wheel = TimingWheel(world.monotonic.now_ms())
    begin = trio.current_time()

    def note(name: str) -> None:
        ran.append((name, round(trio.current_time() - begin, 3)))

    def fail() -> None:
        raise ValueError("reported, not swallowed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_timers, world, wheel, errors.append)
        now_ms = world.monotonic.now_ms()
        wheel.add(now_ms + 30_000, lambda: note("late"))
        await trio.sleep(1)
        wheel.add(now_ms + 1_500, lambda: note("early"))
        wheel.add(now_ms + 1_500, fail)
        wheel.add(now_ms, lambda: note("overdue"))
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert [name for name, _ in ran] == ["overdue", "early", "late"]
    assert [at for _, at in ran] == pytest.approx([1.0, 1.5, 30.0], abs=0.005)
    assert [str(error) for error in errors] == ["reported, not swallowed"]


async def test_timers_that_are_due_together_leave_turns_to_others(autojump_clock: trio.testing.MockClock) -> None:
    """Many timers at one time, one of which comes again at once for ever."""
    ran: list[int] = []
    turns_of_others = 0
    world = cast(World, SimpleNamespace(monotonic=SimpleNamespace(now_ms=lambda: 1_000)))
    wheel = TimingWheel(0)

    def again() -> None:
        wheel.add(1_000, again)

    for number in range(10 * MOST_IN_A_TURN):
        wheel.add(1_000, partial(ran.append, number))
    wheel.add(1_000, again)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_timers, world, wheel, pytest.fail)
        while len(ran) < 10 * MOST_IN_A_TURN:
            before = len(ran)
            await trio.lowlevel.checkpoint()
            assert len(ran) - before <= 2 * MOST_IN_A_TURN, "one turn in each pass of the loop, first or last"
            turns_of_others += 1
        nursery.cancel_scope.cancel()
    assert ran == list(range(10 * MOST_IN_A_TURN))
    assert turns_of_others >= 5
