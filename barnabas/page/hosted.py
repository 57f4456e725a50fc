"""What buttons start and stop: it runs beside the page, in a nursery of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import trio

Ts = TypeVarTuple("Ts")


class Hosted:
    """Who is started by one task and runs in another, until the page ends."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; runs what is started."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def _begin(self, work: Callable[[*Ts], Awaitable[object]], *arguments: *Ts) -> None:
        """Does not wait for it."""
        assert self._nursery is not None, "it is hosted by nobody yet"
        self._nursery.start_soon(work, *arguments)
