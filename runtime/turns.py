"""Fair turns on the event loop, by measured time.

One thread serves all connections. A turn is the work that one connection does before it lets others run: some requests,
or some steps of an expensive one. Turns are free until those since the last round took `ROUND_SECONDS`; then
connections wait in a line, and each round lets in as many as fit into the next `ROUND_SECONDS` (`LONG_ROUND_SECONDS`
while there is one client). Clients that used little time lately stand further ahead in the line. Nodes of the cluster
stand first, and wait only after `LONG_ROUND_SECONDS`. A client has one place for all its connections (its principal at
its address): a thousand of them get no more turns than one. Among the connections of one client, those that used little
stand ahead. A round is one pass of the loop over all its tasks, so timers, replication and the node's own requests run
between any two rounds.

In simulation the stopwatch stands still within a turn: there all turns are free.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from itertools import count

import trio

ROUND_SECONDS = 0.001
"""The time of all turns of clients in one round together, if several clients are there. A record that three nodes
replicate waits for several rounds of a node that others keep busy, so a round is short."""

LONG_ROUND_SECONDS = 0.008
"""The same while there is one client: short rounds cost it a fifth of its small requests, and nobody is there to whom
they would be fair. Nodes of the cluster wait only after this time, too."""

SHARED_SECONDS = 1.0
"""The time for which rounds stay short after two clients had turns one after the other."""

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


MOST_CLIENTS = 4_096
"""Clients above which those that used nothing lately are forgotten."""

REMEMBERED_SECONDS = 20.0
"""The time for which a client without connections is remembered at least."""


class Use:
    """The time that somebody used lately. Times are seconds on the stopwatch."""

    __slots__ = ("counted_at", "used")

    def __init__(self) -> None:
        self.used = 0.0
        self.counted_at = 0.0
        """Time of the last change of `used`."""

    def place(self, now: float) -> float:
        """Its place in a line that it enters now; the lowest is first."""
        return now + min(PENALTY * self.used, LONGEST_PENALTY_SECONDS)

    def is_forgotten(self, now: float) -> bool:
        """True if it used nothing for so long that nobody has to remember it."""
        return now - self.counted_at > REMEMBERED_SECONDS


class ClientShare(Use):
    """The time that all connections of one client used. A client is a principal at one address."""

    __slots__ = ("_line", "is_in_line")

    def __init__(self) -> None:
        super().__init__()
        self._line: list[tuple[float, int, Share, trio.Event]] = []
        """Its connections that wait for a turn."""
        self.is_in_line = False
        """It waits in the line of all clients."""

    @property
    def waiting(self) -> int:
        return len(self._line)

    def enter(self, place: float, number: int, share: Share, admitted: trio.Event) -> None:
        heapq.heappush(self._line, (place, number, share, admitted))

    def leave(self) -> tuple[Share, trio.Event]:
        """Take the connection whose turn is next."""
        _, _, share, admitted = heapq.heappop(self._line)
        return share, admitted


class Share(Use):
    """The time that one connection used lately."""

    __slots__ = ("client", "expected", "is_node")

    def __init__(self, client: ClientShare | None = None) -> None:
        super().__init__()
        self.client = client or ClientShare()
        self.expected = 0.0
        """The time of its last turn."""
        self.is_node = False
        """The peer is a broker or a controller, by its own account."""


class WorkPayer:
    """Pays for work of a connection outside its requests: a `runtime.security.Payer`."""

    __slots__ = ("_share", "_turns", "stopwatch")

    def __init__(self, turns: Turns, share: Share) -> None:
        self._turns = turns
        self._share = share
        self.stopwatch = turns.stopwatch

    def pay(self, began: float, ended: float) -> None:
        self._turns.charge_work(self._share, began, ended)

    async def wait(self) -> None:
        if self._turns.is_over(self._share):
            await self._turns.wait(self._share)
        else:
            await trio.lowlevel.checkpoint()


class Turns:
    """Decides when a connection may have its turn."""

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self.stopwatch = stopwatch
        self.spent = 0.0
        """The time of all turns since the last round began."""
        self._round_seconds = LONG_ROUND_SECONDS
        """The time of clients in a round, as of the last turn."""
        self._last_client: ClientShare | None = None
        self._shared_until = 0.0
        self._nodes: list[tuple[float, int, Share, trio.Event]] = []
        """Connections of nodes that wait."""
        self._line: list[tuple[float, int, ClientShare]] = []
        """Clients with connections that wait: each has one place, however many they are."""
        self._clients: dict[tuple[Hashable, str], ClientShare] = {}
        self._arrivals = count()
        self._bell = trio.Event()

    @property
    def waiting(self) -> int:
        """Connections in the line."""
        return len(self._nodes) + sum(client.waiting for _, _, client in self._line)

    def is_over(self, share: Share) -> bool:
        """True if `share` has to wait for the next round."""
        return self.spent >= (LONG_ROUND_SECONDS if share.is_node else self._round_seconds)

    def client(self, principal: Hashable, host: str) -> ClientShare:
        """The share of all connections of a principal at an address."""
        found = self._clients.get((principal, host))
        if found is None:
            if len(self._clients) >= MOST_CLIENTS:
                self._forget()
            found = self._clients[principal, host] = ClientShare()
        return found

    def _forget(self) -> None:
        now = self.stopwatch()
        kept = {key: it for key, it in self._clients.items() if it.is_in_line or not it.is_forgotten(now)}
        self._clients = kept if len(kept) < MOST_CLIENTS else {}

    def charge(self, share: Share, began: float, ended: float) -> None:
        """Add a turn of `share` to the round."""
        share.expected = ended - began
        self.charge_work(share, began, ended)

    def charge_work(self, share: Share, began: float, ended: float) -> None:
        """Add work of `share` to the round that is no turn of its requests."""
        seconds = ended - began
        self.spent += seconds
        for use in (share, share.client):
            left = use.used - (ended - use.counted_at) * FORGOTTEN_PER_SECOND
            use.used = left + seconds if left > 0 else seconds
            use.counted_at = ended
        if share.is_node:
            return
        if share.client is not self._last_client:
            if self._last_client is not None:
                self._shared_until = ended + SHARED_SECONDS
            self._last_client = share.client
        self._round_seconds = ROUND_SECONDS if ended < self._shared_until else LONG_ROUND_SECONDS

    async def wait(self, share: Share) -> None:
        """Return when `share` may have a turn."""
        admitted = trio.Event()
        now, client = self.stopwatch(), share.client
        if share.is_node:
            heapq.heappush(self._nodes, (share.place(now), next(self._arrivals), share, admitted))
        else:
            client.enter(share.place(now), next(self._arrivals), share, admitted)
            self._line_up(client, now)
        self._bell.set()
        await admitted.wait()

    def _line_up(self, client: ClientShare, now: float) -> None:
        if not client.is_in_line:
            client.is_in_line = True
            heapq.heappush(self._line, (client.place(now), next(self._arrivals), client))

    async def run(self) -> None:
        """Begin rounds while a connection waits, until cancelled."""
        while True:
            await self._bell.wait()
            await trio.lowlevel.checkpoint()
            self._begin_round()
            if not self._nodes and not self._line:
                self._bell = trio.Event()

    def _begin_round(self) -> None:
        self.spent = 0.0
        expected = 0.0
        again: list[ClientShare] = []
        """Clients that have more connections in line: they line up again behind those that wait already."""
        while self._nodes and expected < LONG_ROUND_SECONDS:
            _, _, share, admitted = heapq.heappop(self._nodes)
            expected += share.expected
            admitted.set()
        expected = min(expected, self._round_seconds - ROUND_SECONDS)  # clients get a part, however busy nodes are
        while (self._line or again) and expected < self._round_seconds:
            if not self._line:
                self._line_up_again(again)
            _, _, client = heapq.heappop(self._line)
            client.is_in_line = False
            share, admitted = client.leave()
            if client.waiting:
                again.append(client)
            expected += share.expected
            admitted.set()
        self._line_up_again(again)

    def _line_up_again(self, clients: list[ClientShare]) -> None:
        now = self.stopwatch()
        for client in clients:
            self._line_up(client, now)
        clients.clear()
