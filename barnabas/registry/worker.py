"""The one worker thread of a registry: parses and compares schemas, so that the event loop goes on meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

import trio

from barnabas.registry.errors import RegistryError

T = TypeVar("T")

STRETCH_SECONDS = 0.05
"""A job with many steps lets others have the thread after this time."""
MOST_WAITING = 200


class Worker:
    """Runs jobs in turn."""

    def __init__(self) -> None:
        self._turn = trio.CapacityLimiter(1)
        self._waiting = 0

    async def run(self, job: Callable[[], T]) -> T:
        """Raises what the job raises; `RegistryError` if too many jobs wait."""
        if self._waiting >= MOST_WAITING:
            raise RegistryError(50301, f"{MOST_WAITING} requests wait already; try again")
        self._waiting += 1
        try:
            return await trio.to_thread.run_sync(job, limiter=self._turn)
        finally:
            self._waiting -= 1

    async def take(self, steps: Generator[None, None, T]) -> T:
        """Take all steps. Between two of them it may be cancelled, and others may have the thread."""
        while True:
            result = await self.run(lambda: _stretch(steps))
            if result:
                return result[0]


def _stretch(steps: Generator[None, None, T]) -> list[T]:
    """Steps until the time is over; the result, if they have come to their end."""
    deadline = time.monotonic() + STRETCH_SECONDS
    while time.monotonic() < deadline:
        try:
            next(steps)
        except StopIteration as end:
            return [end.value]
    return []
