"""`BrokerWatch`: detects at once that a broker's process is gone, long before its session ends.

A broker's heartbeats come over one connection. When that ends, the broker's own listeners are dialled: if
their hosts answer that nobody listens there, the process is gone. Anything else (one accepts, one times out,
a host cannot be reached) proves nothing, and the session timeout decides. One listener that refuses is not
enough: an address advertised to clients may mean another machine here, as 127.0.0.1 does in a container.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from barnabas.kraft.metadata.image import BrokerImage, Endpoint
from barnabas.runtime.liveness import process_is_gone
from barnabas.runtime.world import World

log = logging.getLogger("kraft.controller")

DIAL_TIMEOUT_MS = 1000

ProcessGone = Callable[[int, int, str], None]
"""(broker id, broker epoch, evidence)"""


class BrokerWatch:
    """Connections that carry brokers' heartbeats, while this controller is active."""

    def __init__(self, world: World, nursery: trio.Nursery, process_gone: ProcessGone) -> None:
        self._world = world
        self._nursery = nursery
        self._process_gone = process_gone
        self._broker_on: dict[int, BrokerImage] = {}
        """By connection id: the broker as it was registered at its last heartbeat there."""

    def heartbeat_on(self, connection_id: int, broker: BrokerImage) -> None:
        """`broker` sent a heartbeat over this connection."""
        self._broker_on[connection_id] = broker

    def connection_closed(self, connection_id: int) -> None:
        broker = self._broker_on.pop(connection_id, None)
        if broker is not None:
            self.look_at(broker, "its heartbeat connection ended")

    def forget(self) -> None:
        """Forget all connections: another controller fences from now on."""
        self._broker_on.clear()

    def look_at(self, broker: BrokerImage, why: str) -> None:
        """Dial this incarnation's listeners, and report if its process is gone."""
        self._nursery.start_soon(self._dial, broker, why)

    async def _dial(self, broker: BrokerImage, why: str) -> None:
        dialled = []
        for endpoint in _worth_a_dial(broker):
            if not await process_is_gone(self._world, endpoint.host, endpoint.port, DIAL_TIMEOUT_MS):
                log.info("broker %d is not fenced: dialling it gave no evidence that its process is gone", broker.id)
                return
            dialled.append(f"{endpoint.host}:{endpoint.port}")
        if dialled:
            refused = f"dialling {' and '.join(dialled)} was refused"
            self._process_gone(broker.id, broker.epoch, f"{why} and {refused}")


def _worth_a_dial(broker: BrokerImage) -> list[Endpoint]:
    """Its listeners except those on loopback, which a container advertises to the machine around it and which mean
    this machine when dialled here. A broker that has no others listens on loopback for us too."""
    everywhere = [endpoint for endpoint in broker.listeners.values() if not _is_loopback(endpoint.host)]
    return everywhere or list(broker.listeners.values())


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
