"""Steps of the event loop are measured one by one, on the clock and in CPU time."""

from __future__ import annotations

import re
import time

import pytest
import trio

from barnabas.runtime.step_watchdog import MEASURE_STEPS, StepWatchdog, make_watchdog, step_cpu_seconds
from barnabas.runtime.watchdog import Watchdog

pytestmark = pytest.mark.feature("OP-08")

LONG_SECONDS = 0.05


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def run_beside(work: object) -> None:
    """A task for `work` beside one of short steps."""

    async def short_steps() -> None:
        for _ in range(100):
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(short_steps)
        nursery.start_soon(work)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, float, float]]:
    """(task, milliseconds, those of CPU) of each step in the log."""
    found = re.findall(r"a step of (\S+) took ([\d.]+) ms, ([\d.]+) ms of CPU", caplog.text)
    return [(task, float(ms), float(cpu_ms)) for task, ms, cpu_ms in found]


def test_a_long_step_is_logged_with_its_task_and_its_times(caplog: pytest.LogCaptureFixture) -> None:
    async def busy() -> None:
        await trio.lowlevel.checkpoint()
        spin(LONG_SECONDS)
        await trio.lowlevel.checkpoint()

    trio.run(run_beside, busy, instruments=[StepWatchdog(with_stacks=False)])
    ours = [each for each in logged(caplog) if each[0].endswith("busy")]
    assert len(ours) == 1
    _, ms, cpu_ms = ours[0]
    assert LONG_SECONDS * 1000 <= cpu_ms < 1.5 * LONG_SECONDS * 1000
    assert ms >= cpu_ms - 1


def test_a_step_that_only_waits_for_the_processor_has_no_cpu_time(caplog: pytest.LogCaptureFixture) -> None:
    async def stopped() -> None:
        time.sleep(LONG_SECONDS)

    trio.run(run_beside, stopped, instruments=[StepWatchdog(with_stacks=False)])
    [(_, ms, cpu_ms)] = [each for each in logged(caplog) if each[0].endswith("stopped")]
    assert ms >= LONG_SECONDS * 1000
    assert cpu_ms < 20


def test_the_stack_of_a_step_is_logged_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = StepWatchdog(with_stacks=True)

    async def held() -> None:
        until = time.monotonic() + 10
        while not watchdog.sampled and time.monotonic() < until:
            sum(range(1_000))

    trio.run(run_beside, held, instruments=[watchdog])
    assert "the event loop has been busy for" in caplog.text and "held (" in caplog.text


def test_nothing_is_measured_unless_the_environment_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MEASURE_STEPS, raising=False)
    assert type(make_watchdog()) is Watchdog
    assert step_cpu_seconds() is None
