"""Shell: `DecisionQueue` runs the work of the active controller, one job at a time, each in short steps.

A job (a decision, the append of its records) sees the pending image as the job before it left it, so no two are
interleaved. Everything else (heartbeats that arrive, Raft, fetches) has its turn between two steps. Jobs of nodes go
before those of clients. In each of the two groups connections take turns, so that a backlog delays only its sender.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from barnabas.runtime.request_times import Spread
from barnabas.runtime.steps import RunningSteps, Steps, measured
from barnabas.runtime.turns import BUDGET_SECONDS, TURN_SECONDS
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import World

log = logging.getLogger("kraft.controller")

STEPS_IN_A_TURN = 4
"""Steps of a job after which other tasks run, however quick they were."""


@dataclass(slots=True)
class Job:
    """Work for the queue. `steps` yields None between steps, or work for a worker thread whose result it is sent."""

    name: str
    """The API, or the kind of work."""
    steps: Steps
    failed: Callable[[Exception], None]
    """Called if a step raises."""
    api_key: int = -1
    """The API, if the work is for a request."""
    connection: int | None = None
    """The connection that asked for it; None if this controller itself did."""
    is_of_client: bool = False
    """A client asked for it, and no node."""
    is_abandoned: Callable[[], bool] = lambda: False
    """True if nobody waits for it; then it is not begun."""
    done: Callable[[], None] = lambda: None
    """Called when it ended, whether or not it failed."""
    added: float = 0.0
    """On the stopwatch."""


class DecisionQueue:
    """Mutable; `run` is its task."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stopwatch = world.stopwatch
        self._worker = Worker(world.run_blocking)
        self._current: Job | None = None
        self._steps: RunningSteps | None = None
        """The steps of the current job."""
        self._nodes: dict[int | None, deque[Job]] = {}
        self._clients: dict[int | None, deque[Job]] = {}
        """Jobs by connection, in order; the first connection is next."""
        self._added = trio.Event()
        self.on_long_step: Callable[[int, float], None] = lambda _api_key, _seconds: None
        """Called with the API and the seconds of a step that held the event loop for too long."""
        self.waited = Spread()
        """Seconds that jobs waited until their first step."""

    def add(self, job: Job) -> None:
        """Run a job after those before it. If the queue is empty, its first step runs now."""
        job.added = self._stopwatch()
        if self._current is None and not self._nodes and not self._clients:
            self._advance(job, self._begin(job))
        else:
            waiting = self._clients if job.is_of_client else self._nodes
            waiting.setdefault(job.connection, deque()).append(job)
        if self._current is not None or self._nodes or self._clients:
            self._added.set()

    async def run(self) -> None:
        """Run the jobs until cancelled."""
        while True:
            job = self._current or self._next()
            if job is None:
                self._added = trio.Event()
                await self._added.wait()
                await trio.lowlevel.checkpoint()
            else:
                assert self._steps is not None
                await self._take_turn(job, self._steps)

    async def _take_turn(self, job: Job, steps: RunningSteps) -> None:
        """Run a few steps, then let other tasks run."""
        began = self._stopwatch()
        for _ in range(STEPS_IN_A_TURN):
            if steps.work is not None:
                await steps.run_work(self._worker)
            self._advance(job, steps)
            if self._current is not job or self._stopwatch() - began > TURN_SECONDS:
                break
        await trio.lowlevel.checkpoint()

    def _next(self) -> Job | None:
        while self._nodes or self._clients:
            job = _take_first(self._nodes or self._clients)
            if job.is_abandoned():
                self._end(job)
                continue
            self._begin(job)
            return job
        return None

    def _begin(self, job: Job) -> RunningSteps:
        self._current = job
        self.waited.took(self._stopwatch() - job.added)
        count = self._world.count_work
        steps = job.steps if count is None else measured(job.steps, partial(count, job.name))
        self._steps = RunningSteps(steps, job.api_key)
        return self._steps

    def _advance(self, job: Job, steps: RunningSteps) -> None:
        """Run one step."""
        began = self._stopwatch()
        try:
            steps.take()
        except Exception as error:
            self._end(job, error)
        else:
            if steps.is_over:
                self._end(job)
        seconds = self._stopwatch() - began
        if seconds > BUDGET_SECONDS:
            self.on_long_step(job.api_key, seconds)

    def _end(self, job: Job, error: Exception | None = None) -> None:
        job.steps.close()
        if self._current is job:
            self._current = self._steps = None
        if error is not None:
            job.failed(error)
        job.done()


def _take_first(waiting: dict[int | None, deque[Job]]) -> Job:
    """The next job of the first connection, which then is the last one."""
    connection = next(iter(waiting))
    jobs = waiting.pop(connection)
    job = jobs.popleft()
    if jobs:
        waiting[connection] = jobs
    return job
