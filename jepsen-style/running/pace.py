"""The pace of operations: random moments with a mean rate, over all processes together."""

from __future__ import annotations

import math

import trio

from barnabas.runtime.world import Chance


class Pace:
    """The pace of one run. A process that comes late takes the next moment: missed ones are not caught up on."""

    def __init__(self, operations_per_second: float, chance: Chance) -> None:
        self._mean_seconds = 1.0 / operations_per_second
        self._chance = chance
        self._next = 0.0

    async def turn(self) -> None:
        """Waits for this process's moment."""
        moment = max(self._next, trio.current_time())
        self._next = moment - math.log(1.0 - self._chance.random()) * self._mean_seconds
        await trio.sleep_until(moment)
