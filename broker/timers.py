"""Shell: the task that sleeps until the timing wheel has something to do, and runs it."""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.broker.timing_wheel import TimingWheel
from barnabas.runtime.world import World

MOST_IN_A_TURN = 64
"""Callbacks that run before other tasks do. Many may be due together: after a failover the sessions of all members of
all groups end at one time, and work in steps comes again at once."""


async def run_timers(world: World, wheel: TimingWheel, on_error: Callable[[Exception], None]) -> None:
    """Run the wheel on the node's monotonic clock until cancelled.

    The exception of a callback is passed to `on_error`; the other callbacks still run.
    """
    bell = trio.Event()

    def ring() -> None:
        bell.set()

    wheel.on_earlier_deadline = ring
    try:
        while True:
            try:
                ran = wheel.advance(world.monotonic.now_ms(), MOST_IN_A_TURN)
            except Exception as error:
                # A bug in one operation must not stop the deadlines of the others.
                on_error(error)
                continue
            if ran >= MOST_IN_A_TURN:
                await trio.lowlevel.checkpoint()
                continue
            bell = trio.Event()
            deadline_ms = wheel.next_deadline_ms()
            if deadline_ms is None:
                await bell.wait()
                continue
            # The node's clock and trio's may run at different rates: sleep, read the clock, sleep the rest.
            wait_ms = max(1, deadline_ms - world.monotonic.now_ms())
            with trio.move_on_after(wait_ms / 1000):
                await bell.wait()
    finally:
        wheel.on_earlier_deadline = None
