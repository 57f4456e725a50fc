"""Shell: the one task that sleeps until the timing wheel has something to do, and lets it run.

It does not know what the callbacks are for.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from broker.timing_wheel import TimingWheel
from runtime.world import World


async def run_timers(world: World, wheel: TimingWheel, on_error: Callable[[Exception], None]) -> None:
    """Run the wheel on the node's monotonic clock until cancelled.

    A callback that raises is told to `on_error` and costs no other callback its turn.
    """
    bell = trio.Event()

    def ring() -> None:
        bell.set()

    wheel.on_earlier_deadline = ring
    try:
        while True:
            try:
                wheel.advance(world.monotonic.now_ms())
            except Exception as error:
                # One operation's mistake must not stop everybody else's time.
                on_error(error)
                continue
            bell = trio.Event()
            deadline_ms = wheel.next_deadline_ms()
            if deadline_ms is None:
                await bell.wait()
                continue
            # The node's clock and trio's may run at different rates: sleep, look again, sleep the rest.
            wait_ms = max(1, deadline_ms - world.monotonic.now_ms())
            with trio.move_on_after(wait_ms / 1000):
                await bell.wait()
    finally:
        wheel.on_earlier_deadline = None
