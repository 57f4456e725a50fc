"""A network that can end, as a process's does when it is killed: without a goodbye, and nothing is sent from then on.

So a client of ours can crash in any world, without a process of its own.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.runtime.world import Connection, DialFailed, Listener, Network, World


class MortalNetwork:
    """Another network, until `end`."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._connections: list[Connection] = []
        self._ended = False

    async def dial(self, host: str, port: int) -> Connection:
        self._check()
        connection = await self._network.dial(host, port)
        if self._ended:
            connection.close()
        self._check()
        self._connections.append(connection)
        return connection

    async def listen(self, host: str, port: int, *, shared: bool = False) -> Listener:
        self._check()
        return await self._network.listen(host, port, shared=shared)

    def end(self) -> None:
        """All connections are closed, as by the operating system, and there will be no others."""
        self._ended = True
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _check(self) -> None:
        if self._ended:
            raise DialFailed("this client has crashed")


def mortal(world: World) -> tuple[World, MortalNetwork]:
    """The same world, with a network that can end."""
    network = MortalNetwork(world.network)
    return replace(world, network=network), network
