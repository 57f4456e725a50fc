"""A node's network, whose dials to other nodes go through the proxy."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from barnabas.fault_proxy.server import CONNECTED, LOOPBACK
from barnabas.runtime.world import Connection, ConnectionLost, DialFailed, DialRefused, Listener, Network

AGAIN_SECONDS = 0.005


class ProxiedNetwork:
    """Knows ports only: all nodes are on this machine."""

    def __init__(self, network: Network, ways: Mapping[int, int], own: Mapping[int, int] | None = None) -> None:
        """`ways`: by the port at which a node is known, the port of the way that leads there. `own`: ports at which
        this node itself is known, and where it listens."""
        self._network = network
        self._ways = ways
        self._own = own or {}

    async def dial(self, host: str, port: int) -> Connection:
        """Ends when the node at the other end has answered or refused; over a cut way it waits, and the caller bounds
        the time."""
        way = self._ways.get(port)
        if way is None:
            return await self._network.dial(host, self._own.get(port, port))
        status = bytearray(1)
        while True:
            try:
                connection = await self._network.dial(LOOPBACK, way)
            except DialRefused:
                raise
            except DialFailed:
                await trio.sleep(AGAIN_SECONDS)
                continue
            try:
                await connection.receive_into(memoryview(status))
            except ConnectionLost:
                # The way was closed while we waited to be let in: now it refuses.
                connection.close()
                await trio.sleep(AGAIN_SECONDS)
                continue
            except BaseException:
                connection.close()
                raise
            if status == CONNECTED:
                return connection
            connection.close()
            raise DialRefused(f"{host}:{port}: nobody listens")

    async def listen(self, host: str, port: int, *, shared: bool = False) -> Listener:
        return await self._network.listen(host, port, shared=shared)
