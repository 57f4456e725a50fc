"""The links of a simulated cluster under test: every link is as all faults that are on it want it, together.

Knows hosts by name. `client` stands for all hosts of clients, those that come later as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.cluster.errors import ClusterError
from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.links import Badness
from worlds.cluster import LinkFault

CLIENT = "client"

Pair = tuple[str, str]


class SimLinks:
    """The links of one universe."""

    def __init__(self, universe: Universe, nodes: Sequence[str]) -> None:
        self._universe = universe
        self._nodes = list(nodes)
        self._clients: list[str] = []
        self._cuts: dict[Pair, None] = {}
        self._faults: dict[Pair, LinkFault] = {}
        self._stalls: dict[Pair, None] = {}
        self.paused: dict[str, None] = {}

    @property
    def clients(self) -> Sequence[str]:
        """The hosts on which clients live."""
        return self._clients

    def add_client(self, host: str) -> None:
        """Adds a host on which clients live: every fault of `client` is on it from now on."""
        if host not in self._clients:
            self._clients.append(host)
            self._set_all(host)

    def name_of(self, host: str) -> str:
        """The name by which rules for messages know it."""
        return CLIENT if host in self._clients else host

    def cut(self, source: str, target: str) -> None:
        self._cuts[self._pair(source, target)] = None
        self._set_pairs(source, target)

    def mend(self, source: str, target: str) -> None:
        """Takes back one `cut`."""
        if self._cuts.pop(self._pair(source, target), "") is None:
            self._set_pairs(source, target)

    def worsen(self, source: str, target: str, fault: LinkFault) -> None:
        self._faults[self._pair(source, target)] = fault
        self._set_pairs(source, target)

    def stall(self, source: str, target: str, *, on: bool) -> None:
        pair = self._pair(source, target)
        self._stalls.pop(pair, None)
        if on:
            self._stalls[pair] = None
        self._set_pairs(source, target)

    def heal(self) -> None:
        """Takes back `cut`, `worsen` and `stall`; a paused host stays paused."""
        self._cuts.clear()
        self._stalls.clear()
        self._faults.clear()
        for source in self._hosts():
            for target in self._hosts():
                if source != target:
                    self._set(source, target)

    def pause(self, host: str) -> None:
        self.paused[host] = None
        self._set_all(host)

    def resume(self, host: str) -> None:
        if host in self.paused:
            del self.paused[host]
            self._set_all(host)

    # ---- inside

    def _hosts(self) -> list[str]:
        return [*self._nodes, *self._clients]

    def _behind(self, name: str) -> list[str]:
        return list(self._clients) if name == CLIENT else [name]

    def _pair(self, source: str, target: str) -> Pair:
        for name in (source, target):
            if name != CLIENT and name not in self._nodes and name not in self._clients:
                raise ClusterError(f"there is no host {name}; there are {', '.join(self._hosts())} and {CLIENT}")
        return source, target

    def _set_pairs(self, source: str, target: str) -> None:
        for one in self._behind(source):
            for other in self._behind(target):
                if one != other:
                    self._set(one, other)

    def _set_all(self, host: str) -> None:
        for other in self._hosts():
            if other != host:
                self._set(host, other)
                self._set(other, host)

    def _set(self, source: str, target: str) -> None:
        link = self._universe.wires.link(source, target)
        pairs = list(self._pairs_of(source, target))
        fault = next((self._faults[pair] for pair in pairs if pair in self._faults), LinkFault())
        bad = Badness(
            fault.latency_ms,
            fault.jitter_ms,
            fault.bytes_per_second,
            fault.loss,
            fault.half_open,
            fault.reset_after_bytes,
        )
        if (link.bad or Badness()) != bad:
            link.worsen(bad)
        stalled = source in self.paused or target in self.paused or any(pair in self._stalls for pair in pairs)
        link.set(cut=any(pair in self._cuts for pair in pairs), stalled=stalled)

    def _pairs_of(self, source: str, target: str) -> Iterator[Pair]:
        """All names by which a fault can mean this link, the most exact first."""
        yield source, target
        if source in self._clients:
            yield CLIENT, target
        if target in self._clients:
            yield source, CLIENT
