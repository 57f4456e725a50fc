"""Sends answers that were filled outside the turn of their own connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

MAX_WAITS = 4
"""Passes of the event loop for which deferred work waits, if requests come in each of them."""


class Flushable(Protocol):
    """A connection with answers that may be sent."""

    def flush(self) -> None: ...


class Flusher:
    """Batches answers so that each connection is sent to once for everything that happened together.

    Filling an answer only puts its connection on a list. If that happens in the turn of another connection (a fetch
    moves a high watermark and completes twenty produces), the list is flushed when that turn ends, at no cost in
    wake-ups. Otherwise (a timer) the flushing task is woken. It runs after all tasks that are ready now, so one wake-up
    and one send per connection serve everything that was filled in the meantime.

    Work that is to be done once for all that the ready tasks do can be deferred, too (`afterwards`).
    """

    def __init__(self) -> None:
        self.holds = False
        """Answers are filled by code that flushes when it is through."""
        self.in_turn: Flushable | None = None
        """The connection whose turn it is."""
        self.turns = 0
        """Turns of all connections since the start."""
        self._waiting: list[Flushable] = []
        self._deferred: list[Callable[[], None]] = []
        self._turns_before = 0
        """`turns` when work was last deferred."""
        self._parking = trio.lowlevel.ParkingLot()
        self._woken = False

    def begin_turn(self, connection: Flushable) -> None:
        self.in_turn, self.holds = connection, True
        self.turns += 1

    def end_turn(self, connection: Flushable) -> None:
        """Send what was answered in the turn, by this connection and by others."""
        self.in_turn, self.holds = None, False
        connection.flush()
        if self._waiting:
            self.flush()

    def add(self, connection: Flushable) -> None:
        """Flush `connection` soon."""
        self._waiting.append(connection)
        if not self.holds:
            self._wake()

    def afterwards(self, work: Callable[[], None]) -> None:
        """Call `work` after all tasks that are ready now. It must not raise."""
        self._deferred.append(work)
        self._turns_before = self.turns
        self._wake()

    def flush(self) -> None:
        """Flush every connection on the list."""
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.flush()

    async def run(self) -> None:
        """Flush whenever woken, for ever."""
        while True:
            self._woken = False
            if not self._waiting and not self._deferred:
                await self._parking.park()
            if self._deferred:
                await self._let_others_go_first()
                self._do_deferred()
            self.flush()

    async def _let_others_go_first(self) -> None:
        """While several requests come at a time, deferred work waits for those that have arrived."""
        for _ in range(MAX_WAITS):
            if self.turns == self._turns_before:
                return
            self._turns_before = self.turns
            self.flush()
            await trio.lowlevel.checkpoint()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._parking.unpark()

    def _do_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        self.holds = True
        try:
            for work in deferred:
                work()
        finally:
            self.holds = False
