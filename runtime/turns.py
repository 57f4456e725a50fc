"""Fair turns on the event loop, by measured time.

One thread serves all connections. A turn is the work that one connection does before it lets others run: some requests,
or some steps of an expensive one. Turns are free until those since the last round took `ROUND_SECONDS`; then
connections wait in a line, and each round lets in as many as fit into the next `ROUND_SECONDS`. Connections that used
little time lately stand further ahead in the line, nodes of the cluster stand first. A round is one pass of the loop
over all its tasks, so timers, replication and the node's own requests run between any two rounds.

In simulation the stopwatch stands still within a turn: there all turns are free.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

import trio

ROUND_SECONDS = 0.008
"""The time of all turns of one round together."""

TURN_SECONDS = 0.004
"""The time after which a turn ends, at the end of a request or of a step."""

STEPS_TURN_SECONDS = 0.002
"""The time after which a turn of steps ends. Turns of expensive requests are shorter: others wait for each of them."""

BUDGET_SECONDS = 0.020
"""No request, and no step of one, may hold the event loop for longer. Those that do are counted by API."""

FORGOTTEN_PER_SECOND = 0.1
"""The share of each second by which the time that a connection used is forgotten."""

PENALTY = 100
"""The time that a connection used moves it back in the line by so many times as much."""

LONGEST_PENALTY_SECONDS = 1.0
"""The most by which a connection is moved back."""


class Share:
    """The time that one connection used lately. Times are seconds on the stopwatch."""

    __slots__ = ("_counted_at", "expected", "is_node", "used")

    def __init__(self) -> None:
        self.used = 0.0
        self.expected = 0.0
        """The time of its last turn."""
        self.is_node = False
        """The peer is a broker or a controller, by its own account."""
        self._counted_at = 0.0

    def charge(self, seconds: float, now: float) -> None:
        self.used = max(0.0, self.used - (now - self._counted_at) * FORGOTTEN_PER_SECOND) + seconds
        self.expected = seconds
        self._counted_at = now

    def place(self, now: float) -> float:
        """Its place in a line that it enters now; the lowest is first."""
        ahead = 2 * LONGEST_PENALTY_SECONDS if self.is_node else 0.0
        return now + min(PENALTY * self.used, LONGEST_PENALTY_SECONDS) - ahead


class Turns:
    """Decides when a connection may have its turn."""

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self.stopwatch = stopwatch
        self.spent = 0.0
        """The time of all turns since the last round began. Turns are free while it is below `ROUND_SECONDS`."""
        self._line: list[tuple[float, int, Share, trio.Event]] = []
        self._arrivals = count()
        self._bell = trio.Event()

    @property
    def waiting(self) -> int:
        """Connections in the line."""
        return len(self._line)

    def charge(self, share: Share, began: float, ended: float) -> None:
        """Add a turn of `share` to the round."""
        seconds = ended - began
        self.spent += seconds
        share.charge(seconds, ended)

    async def wait(self, share: Share) -> None:
        """Return when `share` may have a turn."""
        admitted = trio.Event()
        place = share.place(self.stopwatch())
        heapq.heappush(self._line, (place, next(self._arrivals), share, admitted))
        self._bell.set()
        await admitted.wait()

    async def run(self) -> None:
        """Begin rounds while a connection waits, until cancelled."""
        while True:
            await self._bell.wait()
            await trio.lowlevel.checkpoint()
            self._begin_round()
            if not self._line:
                self._bell = trio.Event()

    def _begin_round(self) -> None:
        self.spent = 0.0
        expected = 0.0
        while self._line and expected < ROUND_SECONDS:
            _, _, share, admitted = heapq.heappop(self._line)
            expected += share.expected
            admitted.set()
