"""Measures each step of each task of the event loop, on the clock and in CPU time of the loop's thread.

On a machine that others use, a step of 5 ms may take 50 ms on the clock; its CPU time says which of the two it was. The
measurement costs some microseconds a step, so it runs only where `BARNABAS_MEASURE_STEPS` is in the environment. With
`BARNABAS_MEASURE_STEPS=stacks` the stacks of these steps are logged, too, for which a thread looks on fifty times a
second.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Mapping

import trio

from barnabas.runtime.turns import BUDGET_SECONDS
from barnabas.runtime.watchdog import Watchdog

log = logging.getLogger(__name__)

MEASURE_STEPS = "BARNABAS_MEASURE_STEPS"
WITH_STACKS = "stacks"


class StepWatchdog(Watchdog):
    """A watchdog that logs the name and the times of each step above the budget."""

    def __init__(self, *, with_stacks: bool) -> None:
        super().__init__()
        if with_stacks:
            self.sampled_seconds = BUDGET_SECONDS
        self._cpu = 0.0
        """CPU time of the thread at the start of the step."""
        self._collection_began = 0.0

    def before_run(self) -> None:
        super().before_run()
        gc.callbacks.append(self._collection)

    def after_run(self) -> None:
        gc.callbacks.remove(self._collection)
        super().after_run()

    def after_io_wait(self, timeout: float) -> None:
        pass

    def before_io_wait(self, timeout: float) -> None:
        pass

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._cpu = time.thread_time()
        self._began = time.monotonic()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        seconds = time.monotonic() - self._began
        self._began = 0.0
        if seconds > BUDGET_SECONDS:
            cpu_ms = (time.thread_time() - self._cpu) * 1000
            log.warning("a step of %s took %.1f ms, %.1f ms of CPU", task.name, seconds * 1000, cpu_ms)

    def cpu_seconds(self) -> float:
        """CPU time of the step so far."""
        return time.thread_time() - self._cpu

    def _collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._collection_began = time.thread_time()
        elif (seconds := time.thread_time() - self._collection_began) > BUDGET_SECONDS / 2:
            log.warning("a collection of generation %d took %.1f ms of CPU", info["generation"], seconds * 1000)


_made: list[StepWatchdog] = []
"""The watchdog of this process, if it measures steps."""


def make_watchdog() -> Watchdog:
    """The watchdog for the event loop of this process."""
    wanted = os.environ.get(MEASURE_STEPS)
    if not wanted:
        return Watchdog()
    watchdog = StepWatchdog(with_stacks=wanted == WITH_STACKS)
    _made[:] = [watchdog]
    return watchdog


def step_cpu_seconds() -> float | None:
    """CPU time of the present step so far, at the end of a request perhaps that of its whole turn; None: not measured.
    """
    return _made[0].cpu_seconds() if _made else None
