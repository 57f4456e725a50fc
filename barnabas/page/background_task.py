"""Base class of work that a button starts and that runs until the page ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import trio

Ts = TypeVarTuple("Ts")


class BackgroundTask:
    """Started by the task of a request, runs in the page's nursery."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Provides the nursery until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def _begin(self, work: Callable[[*Ts], Awaitable[object]], *arguments: *Ts) -> None:
        """Starts `work` and returns."""
        assert self._nursery is not None, "`run` has not started"
        self._nursery.start_soon(work, *arguments)
