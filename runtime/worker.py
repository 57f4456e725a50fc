"""The one worker of a node: long work of requests runs there, away from the event loop.

It does one piece of work at a time. Several threads would only share a core, and each would hold memory of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from barnabas.runtime.world import RunBlocking

T = TypeVar("T")


class Worker:
    """Runs work in a thread, first come first served."""

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._lock = trio.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` when the worker is free, and return its result."""
        async with self._lock:
            return await self._run_blocking(work)

    @asynccontextmanager
    async def reserved(self) -> AsyncIterator[RunBlocking]:
        """Hold the worker for several pieces of work that belong together: what they share exists only once in the
        node. Work inside the block runs by the function that the block is given."""
        async with self._lock:
            yield self._run_blocking
