"""A place where one task waits to be woken: the smallest piece of trio that does it."""

from __future__ import annotations

import trio


class WaitingPlace:
    """At most one task waits here; a wake-up without a waiter has no effect."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Wait for `wake`. A wake-up is only a hint: the waiter has to check its condition again."""
        assert self._task is None, "two tasks wait for the same thing"
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._give_up)

    def wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _give_up(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
