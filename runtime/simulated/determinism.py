"""Runs a story so that one seed gives one schedule. The only file that uses private names of trio.

trio runs each batch of ready tasks in random order. With its deterministic flag on, it sorts the batch by the
tasks' age and then shuffles with `_r`, which we seed: the order is still arbitrary, but the same in every run, for any
hash seed and any addresses of objects. Threads and sockets would bring in real time, and are refused. Other threads of
the process may run real event loops meanwhile, which notice nothing.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
import trio._core._run as trio_scheduler

from barnabas.runtime.simulated.chance import Stream, make_stream
from barnabas.runtime.simulated.universe import Universe
from barnabas.runtime.simulated.virtual_time import VirtualTime

T = TypeVar("T")

REFUSED_EVENTS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen")
"""Audit events of the real world (trio's own wake-up socket pair raises none of them)."""

TURNS_WITHOUT_POLLING = 100
TURNS_OF_A_MOMENT = 200_000
"""After this many turns at one moment, tasks keep each other busy for ever: a story needs some hundred."""
TURNS_TO_SEE_WHO = 1_000


class RealWorldTouched(RuntimeError):
    """A simulated story used a thread, a socket or a process."""


class SimulationStuck(RuntimeError):
    """Every task of a story waited and no event was due, or tasks never waited and time stood still."""


_audited = False


def _audit(event: str, _: tuple[Any, ...]) -> None:
    if event in REFUSED_EVENTS and _simulating():
        raise RealWorldTouched(f"{event} in a simulation")


def _simulating() -> bool:
    return trio.lowlevel.in_trio_run() and isinstance(trio.lowlevel.current_clock(), VirtualTime)


def run_simulation(seed: int, story: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run `story(universe, *args)` under virtual time and a schedule fixed by `seed`; returns its result.

    Time passes only when every task waits, and then at once. Raises SimulationStuck if every task would wait for ever,
    or if some never wait.
    """
    universe = Universe(seed)
    moment = _Moment(universe.time)

    async def main() -> T:
        why = ""

        def give_up(reason: str) -> None:
            nonlocal why
            assert not why, "a task shields itself from the end of a story that is stuck"
            why = reason
            scope.cancel()

        with trio.CancelScope() as scope:
            universe.time.on_stuck = lambda: give_up("every task waits for ever")
            moment.on_endless = lambda tasks: give_up(f"time stands still: {', '.join(tasks)} never come to rest")
            try:
                return await story(universe, *args)
            finally:
                universe.time.on_stuck = None
        raise SimulationStuck(f"seed {seed}: at {universe.time.now} s {why}")

    with _fixed_schedule(seed), _no_polling(moment.turn), _no_real_world():
        return trio.run(main, clock=universe.time)


class _Moment(trio.abc.Instrument):
    """Counts the turns while time stands still, and finally names the tasks that take them."""

    def __init__(self, time: VirtualTime) -> None:
        self.on_endless: Callable[[list[str]], None] | None = None
        self._time = time
        self._now = -1.0
        self._turns = 0
        self._busy: Counter[str] = Counter()

    def turn(self) -> None:
        if self._time.now != self._now:
            self._now, self._turns = self._time.now, 0
            return
        self._turns += 1
        if self._turns == TURNS_OF_A_MOMENT:
            self._busy.clear()
            trio.lowlevel.add_instrument(self)
        elif self._turns == TURNS_OF_A_MOMENT + TURNS_TO_SEE_WHO:
            trio.lowlevel.remove_instrument(self)
            if self.on_endless is not None:
                self.on_endless(sorted(name for name, times in self._busy.items() if times > TURNS_TO_SEE_WHO // 10))

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._busy[task.name] += 1


@contextmanager
def _fixed_schedule(seed: int) -> Iterator[None]:
    scheduler: Any = trio_scheduler
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    others = scheduler._r
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r = _ThreadsOwn(make_stream(seed, "schedule"), others)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before
        scheduler._r = others


class _ThreadsOwn:
    """Random numbers of this thread, and those for the event loops of other threads."""

    def __init__(self, own: Stream, others: Stream) -> None:
        self._own = own
        self._others = others
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own if threading.get_ident() == self._thread else self._others, name)


@contextmanager
def _no_polling(on_turn: Callable[[], None]) -> Iterator[None]:
    """No event comes from outside, so the system is not polled in each turn, only often enough for Ctrl-C."""
    scheduler: Any = trio_scheduler
    manager = scheduler.TheIOManager
    get_events = manager.get_events
    turns = 0
    thread = threading.get_ident()

    def rarely(self: Any, timeout: float) -> Any:
        nonlocal turns
        if threading.get_ident() != thread:
            return get_events(self, timeout)
        turns += 1
        on_turn()
        return () if timeout == 0 and turns % TURNS_WITHOUT_POLLING else get_events(self, timeout)

    manager.get_events = rarely
    try:
        yield
    finally:
        manager.get_events = get_events


@contextmanager
def _no_real_world() -> Iterator[None]:
    global _audited  # noqa: PLW0603 - audit hooks cannot be removed, so there is one for ever
    if not _audited:
        _audited = True
        sys.addaudithook(_audit)
    threads: Any = trio.to_thread
    run_sync = threads.run_sync

    async def refuse(*args: Any, **options: Any) -> Any:
        if _simulating():
            raise RealWorldTouched("a thread in a simulation: blocking work goes through World.run_blocking")
        return await run_sync(*args, **options)

    threads.run_sync = refuse
    try:
        yield
    finally:
        threads.run_sync = run_sync
