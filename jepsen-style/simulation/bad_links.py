"""Networks that are bad without being cut: slow, lossy, narrow, half open, in pieces, without names.

Each fault holds for a while and is then undone; `undo` takes back all that still hold. Knows links and hosts by name,
no node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from runtime.simulated import Universe
from runtime.simulated.chance import Stream
from runtime.simulated.links import Badness, Link

STORM_ROUNDS = 4
DRIBBLE_SECONDS = 1.0
"""At most so long: a byte at a time costs."""


@dataclass(slots=True)
class BadLinks:
    """Of one universe."""

    universe: Universe
    chance: Stream
    everybody: Callable[[], list[str]]
    """All hosts: nodes and clients."""
    hold: Callable[[], Awaitable[None]]
    """Waits for as long as a fault lasts."""
    _slowed: dict[Link, None] = field(default_factory=dict)
    _worse: dict[Link, None] = field(default_factory=dict)

    def undo(self) -> None:
        for link in self._slowed:
            link.latency_min_ms, link.latency_mean_ms = self.universe.wires.latency_ms
        for link in self._worse:
            link.worsen(None)
        self._slowed.clear()
        self._worse.clear()
        fabric = self.universe.fabric
        fabric.habits.dribblers.clear()
        fabric.unresolved.clear()

    # ---- links

    def _some(self, part: float) -> list[Link]:
        names = self.everybody()
        link = self.universe.wires.link
        return [link(a, b) for a in names for b in names if a != b and self.chance.random() < part]

    async def slow(self) -> bool:
        links = self._some(0.3)
        least_ms = self.chance.choice((20.0, 100.0, 400.0))
        before = self.universe.wires.arrivals
        for link in links:
            self._slowed[link] = None
            link.latency_min_ms, link.latency_mean_ms = least_ms, least_ms
        await self.hold()
        for link in links:
            link.latency_min_ms, link.latency_mean_ms = self.universe.wires.latency_ms
        return self.universe.wires.arrivals > before

    async def lossy(self) -> bool:
        """Bursts are lost and sent again, as TCP does; or the link is narrow, or both."""
        bad = self.chance.choice(
            (
                Badness(loss=0.05),
                Badness(loss=0.3, jitter_ms=20.0),
                Badness(bytes_per_second=20_000),
                Badness(loss=0.1, bytes_per_second=100_000),
            )
        )
        return await self._worsen(self._some(0.3), bad)

    async def half_open(self, name: str) -> bool:
        """Connections to or from one host look alive, and carry nothing."""
        others = [other for other in self.everybody() if other != name and self.chance.random() < 0.7]
        link = self.universe.wires.link
        both, into = self.chance.random() < 0.5, self.chance.random() < 0.5
        links = [link(other, name) for other in others if both or into]
        links += [link(name, other) for other in others if both or not into]
        return await self._worsen(links, Badness(half_open=True))

    async def resets(self) -> bool:
        """Connections end in the middle of whatever they carry."""
        limit_bytes = self.chance.choice((100, 1_000, 10_000))
        return await self._worsen(self._some(0.2), Badness(reset_after_bytes=limit_bytes))

    async def _worsen(self, links: list[Link], bad: Badness) -> bool:
        links = [link for link in links if link not in self._worse]
        before = self.universe.wires.arrivals
        for link in links:
            self._worse[link] = None
            link.worsen(bad)
        await self.hold()
        for link in links:
            if self._worse.pop(link, bad) is None:
                link.worsen(None)
        return bool(links) and self.universe.wires.arrivals > before

    async def storm(self) -> bool:
        """Everybody loses all connections, dials anew, and loses them again."""
        links = [link for link in self._some(1.0) if link not in self._worse]
        for _ in range(STORM_ROUNDS):
            for link in links:
                self._worse[link] = None
                link.worsen(Badness(reset_after_bytes=1))
            await trio.sleep(self.chance.uniform(0.02, 0.3))
            for link in links:
                if self._worse.pop(link, 0) is None:
                    link.worsen(None)
            await trio.sleep(self.chance.uniform(0.05, 0.5))
        return True

    # ---- hosts

    async def dribble(self, name: str) -> bool:
        """A host is given what comes one byte at a time."""
        dribblers = self.universe.fabric.habits.dribblers
        before = self.universe.wires.arrivals
        dribblers[name] = None
        await trio.sleep(self.chance.uniform(0.1, DRIBBLE_SECONDS))
        dribblers.pop(name, None)
        return self.universe.wires.arrivals > before

    async def names_gone(self) -> bool:
        """Nobody can look up some names any more; connections that are there stay."""
        names = [name for name in self.everybody() if self.chance.random() < 0.5]
        fabric = self.universe.fabric
        before = fabric.lookups_failed
        fabric.unresolved.update(dict.fromkeys(names))
        await self.hold()
        for name in names:
            fabric.unresolved.pop(name, None)
        return fabric.lookups_failed > before
