"""The re-authentication of one outgoing connection (KIP-368).

As in Kafka's clients, a request that is sent late in a session begins it. That request and the next ones are held back
until it is over; answers to earlier ones arrive meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.runtime.world import Chance, Chunk

EARLIEST, LATEST = 0.85, 0.95
"""The part of a session's lifetime after which it is renewed lies between these: not all at the same time."""

MIN_INTERVAL_SECONDS = 1.05
"""Servers refuse two re-authentications within one second."""

RENEWAL_SECONDS = 10
"""Longest re-authentication. Requests wait for it."""


class Renewal:
    """The end of a session, and the requests that wait for the next one."""

    __slots__ = ("_begin", "_due", "held", "not_before", "over", "under_way")

    def __init__(self, begin: Callable[[Renewal], None], lifetime_ms: int, not_before: float, chance: Chance) -> None:
        """`begin` is called once, when the first request comes late enough. `not_before` is by trio's clock."""
        part = EARLIEST + (LATEST - EARLIEST) * chance.random()
        self._begin = begin
        self._due = trio.current_time() + part * lifetime_ms / 1000
        self.not_before = not_before
        self.under_way = False
        self.held: list[tuple[int, list[Chunk]]] = []
        """Correlation ids and chunks, in the order of the calls."""
        self.over = trio.Event()
        """Set when the requests were sent, or the connection closed."""

    def holds(self) -> bool:
        """A request must wait."""
        if not self.under_way and trio.current_time() >= self._due:
            self.under_way = True
            self._begin(self)
        return self.under_way
