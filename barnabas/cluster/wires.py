"""Links between the processes of one machine that a test can cut: a network partition without root.

A file that all nodes map into memory has a byte for each link. A node checks it for each connection that it made itself
to another node; the other ends are left to the peers. A cut link carries nothing and closes nothing, as if the switch
between two racks had died: sends wait, received bytes are held back, dials wait, and after the repair all of it goes
on, as TCP would. Clients' connections are never cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import Layout
from barnabas.cluster.shared_memory import map_shared
from barnabas.runtime.world import Bytes, Connection, ConnectionLost, File, Listener, Network

LOOK_SECONDS = 0.01
"""Interval of checks of a cut link."""
_CUT = 1


class Wires:
    """The table: one byte for each ordered pair of nodes."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        """`names` of all nodes, in the same order in every process. Creates the file, without cut links, if it does not
        exist.
        """
        self._places = {name: place for place, name in enumerate(names)}
        self._table = map_shared(path, len(names) ** 2)

    def is_cut(self, source: str, target: str) -> bool:
        return self._table[self._place(source, target)] == _CUT

    def cut(self, source: str, target: str) -> None:
        self._table[self._place(source, target)] = _CUT

    def mend(self, source: str, target: str) -> None:
        self._table[self._place(source, target)] = 0

    def partition(self, groups: Iterable[Iterable[str]]) -> None:
        """Cut the links between nodes of different groups, both ways."""
        sides = [list(group) for group in groups]
        for index, side in enumerate(sides):
            for other in sides[index + 1 :]:
                for source in side:
                    for target in other:
                        self.cut(source, target)
                        self.cut(target, source)

    def heal(self) -> None:
        """Repair all links."""
        self._table[:] = bytes(len(self._table))

    def _place(self, source: str, target: str) -> int:
        for name in (source, target):
            if name not in self._places:
                raise ClusterError(f"there is no node {name}; nodes are {', '.join(self._places)}")
        return self._places[source] * len(self._places) + self._places[target]


def open_wires(layout: Layout) -> Wires:
    """The links between the nodes of a cluster."""
    return Wires(layout.data / "run" / "wires", [node.name for node in layout.nodes])


class SeverableNetwork:
    """A node's network, whose links to other nodes can be cut."""

    def __init__(self, network: Network, wires: Wires, name: str, nodes: Mapping[int, str]) -> None:
        """`name` of this node; `nodes` are all of them, by listener port."""
        self._network = network
        self._wires = wires
        self._name = name
        self._nodes = nodes

    async def dial(self, host: str, port: int) -> Connection:
        """Like the underlying network. A dial over a cut link waits; the caller bounds the time."""
        peer = self._nodes.get(port)
        if peer is None or peer == self._name:
            return await self._network.dial(host, port)
        while self._wires.is_cut(self._name, peer) or self._wires.is_cut(peer, self._name):
            await trio.sleep(LOOK_SECONDS)
        return SeverableConnection(await self._network.dial(host, port), self._wires, (self._name, peer))

    async def listen(self, host: str, port: int, *, shared: bool = False) -> Listener:
        return await self._network.listen(host, port, shared=shared)


class SeverableConnection:
    """A connection that this node made to another one."""

    __slots__ = ("_closed", "_connection", "_me", "_peer", "_wires")

    def __init__(self, connection: Connection, wires: Wires, ends: tuple[str, str]) -> None:
        self._connection = connection
        self._wires = wires
        self._me, self._peer = ends
        self._closed = False

    @property
    def peer_host(self) -> str:
        return self._connection.peer_host

    @property
    def peer_port(self) -> int:
        return self._connection.peer_port

    @property
    def local_address(self) -> tuple[str, int]:
        return self._connection.local_address

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            count = await self._connection.receive_into(buffer)
        except ConnectionLost:
            # The end of a connection is not visible over a cut link either.
            await self._repaired(self._peer, self._me)
            raise
        if self._wires.is_cut(self._peer, self._me):
            # The buffer may be used by others meanwhile: fill it just before this returns.
            held = bytes(buffer[:count])
            await self._repaired(self._peer, self._me)
            buffer[:count] = held
        return count

    def send_now(self, views: Sequence[Bytes]) -> int:
        return 0 if self._wires.is_cut(self._me, self._peer) else self._connection.send_now(views)

    def send_file_now(self, file: File, offset: int, count: int) -> int:
        cut = self._wires.is_cut(self._me, self._peer)
        return 0 if cut else self._connection.send_file_now(file, offset, count)

    async def wait_writable(self) -> None:
        await self._repaired(self._me, self._peer)
        await self._connection.wait_writable()

    def has_ended(self) -> bool:
        return not self._wires.is_cut(self._peer, self._me) and self._connection.has_ended()

    def close(self) -> None:
        self._closed = True
        self._connection.close()

    async def _repaired(self, source: str, target: str) -> None:
        while self._wires.is_cut(source, target):
            await trio.sleep(LOOK_SECONDS)
            if self._closed:
                raise ConnectionLost("closed here")
