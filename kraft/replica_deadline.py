"""Wakes one replica of the metadata log when its core, or a parked request, is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio


class Waiting(Protocol):
    """The replica, as far as its deadline knows it."""

    @property
    def waits_for_disk(self) -> bool: ...
    def now_ms(self) -> int: ...


class ReplicaDeadline:
    """The next moment at which `due` is called; each step sets it again."""

    def __init__(self, replica: Waiting, due: Callable[[], None]) -> None:
        self._replica = replica
        self._due = due
        self._deadline_ms: int | None = None
        self._moved = trio.Event()

    def set(self, *times_ms: int | None) -> None:
        """The earliest of these; None: never."""
        deadline_ms = min((time for time in times_ms if time is not None), default=None)
        earlier = deadline_ms is not None and (self._deadline_ms is None or deadline_ms < self._deadline_ms)
        self._deadline_ms = deadline_ms
        if earlier:
            self._moved.set()

    async def run(self) -> None:
        while True:
            self._moved = trio.Event()
            deadline_ms = self._deadline_ms
            if deadline_ms is None:
                await self._moved.wait()
                continue
            wait_ms = deadline_ms - self._replica.now_ms()
            if wait_ms > 0:
                with trio.move_on_after(wait_ms / 1000):
                    await self._moved.wait()
                continue
            if self._replica.waits_for_disk:
                # The step that waits for the disk sets the next deadline.
                self._deadline_ms = None
                continue
            self._due()
