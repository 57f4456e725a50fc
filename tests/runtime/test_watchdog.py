"""The watchdog logs each pass of the event loop that takes too long, and hardly ever wakes otherwise."""

from __future__ import annotations

import math
import time

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.runtime.watchdog import SAMPLED_SECONDS, Looks, Watchdog
from tests.examples import examples

START = 1_000.0


def looks_at(passes: list[tuple[float, float]], until: float) -> list[tuple[float, bool]]:
    """Each look at a loop whose passes (start, end) these are: its time, and whether the stack was logged."""
    looks, now = Looks(), START
    taken: list[tuple[float, bool]] = []
    wait = SAMPLED_SECONDS
    while (now := now + wait) < until:
        began = next((begin for begin, end in passes if begin <= now < end), 0.0)
        is_due, wait = looks.look(began, now)
        taken.append((now, is_due))
        assert 0 < wait <= SAMPLED_SECONDS
    return taken


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 3)), max_size=6))
def test_each_long_pass_is_logged_and_no_short_one(gaps_and_lengths: list[tuple[float, float]]) -> None:
    passes: list[tuple[float, float]] = []
    end = START
    for gap, length in gaps_and_lengths:
        passes.append((end + gap, end + gap + length))
        end = passes[-1][1]
    logged = [now for now, is_due in looks_at(passes, end + 1) if is_due]
    for begin, end in passes:
        times = [now - begin for now in logged if begin <= now < end]
        if end - begin < SAMPLED_SECONDS:
            assert not times
        elif end - begin > SAMPLED_SECONDS + 1e-6:
            assert times[0] == pytest.approx(SAMPLED_SECONDS), "as soon as it is long"
            doublings = math.log2((end - begin) / SAMPLED_SECONDS)
            assert len(times) <= doublings + 1.001, "then each time that its duration has doubled"


def test_an_idle_loop_is_looked_at_five_times_in_a_second() -> None:
    assert len(looks_at([], START + 10)) in (49, 50)


def test_a_loop_of_short_passes_is_looked_at_no_more_often() -> None:
    busy = [(START + at / 1000, START + (at + 1) / 1000) for at in range(2_000)]
    assert len(looks_at(busy, START + 2)) <= 11


def test_a_real_loop_that_is_held_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog()

    async def hold() -> None:
        await trio.lowlevel.checkpoint()
        until = time.monotonic() + 10
        while not watchdog.sampled and time.monotonic() < until:
            sum(range(1_000))

    trio.run(hold, instruments=[watchdog])
    assert watchdog.sampled >= 1
    assert "the event loop has been busy for" in caplog.text and "hold (" in caplog.text
