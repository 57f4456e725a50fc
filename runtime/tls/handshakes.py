"""Bounds what handshakes cost a listener: a step of one takes about 2 ms, a thousand times as much as a small request.

One step is taken in each pass of the event loop, so all connections that are ready have their turns between any two;
handshakes under way go before new ones. Only so many may be under way; then the oldest one ends, which waits for
its peer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

MOST_UNDER_WAY = 1_000


class Handshakes:
    """The handshakes under way at one listener."""

    def __init__(self, most: int = MOST_UNDER_WAY) -> None:
        self._most = most
        self._under_way: dict[trio.CancelScope, None] = {}
        """The oldest first."""
        self._continuing = trio.lowlevel.ParkingLot()
        self._new = trio.lowlevel.ParkingLot()
        self._busy = False

    @property
    def under_way(self) -> int:
        """The number of handshakes after their first message."""
        return len(self._under_way)

    @contextmanager
    def counted(self) -> Iterator[trio.CancelScope]:
        """Count a handshake. Its scope is cancelled if it has to make room."""
        if len(self._under_way) >= self._most:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()
        with trio.CancelScope() as scope:
            self._under_way[scope] = None
            try:
                yield scope
            finally:
                self._under_way.pop(scope, None)

    async def enter(self, *, is_new: bool) -> None:
        """Wait until a step may be taken; `leave` comes after it."""
        if self._busy:
            await (self._new if is_new else self._continuing).park()
            return
        self._busy = True
        try:
            await trio.lowlevel.checkpoint()
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """The step is over."""
        for waiting in (self._continuing, self._new):
            if waiting:
                waiting.unpark()
                return
        self._busy = False
