"""Finds the HTTP listeners of nodes whose Kafka listeners are known.

Kafka's protocol does not carry `barnabas.http.listener`. So the ports of `make up` and of docker-compose.yml are tried,
and a node counts as found if the answer carries its role and id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import trio

from barnabas.cluster.node_page import NoAnswer, NodePage
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.world import Network

ABOVE_LISTENER = 200
"""Distance of the HTTP port from the Kafka port in a cluster of `make up`."""
CONTROLLERS_ABOVE_BROKERS = 300
"""From the first broker's Kafka port to the first controller's HTTP port, in `make up` and on a docker host."""
CONTAINER_PORT = 9292
"""HTTP port of every node in docker-compose.yml."""
PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """The HTTP listener of a node."""

    name: str
    host: str
    port: int
    token: HttpToken | None = None
    """Sent with each question."""


@dataclass(frozen=True, slots=True)
class NodeListener:
    """The Kafka listener of a node; the host is empty if it is not known."""

    role: str
    id: int
    host: str
    port: int

    @property
    def name(self) -> str:
        return f"{self.role}-{self.id}"


def candidates(
    listener: NodeListener, all_listeners: Sequence[NodeListener], token: HttpToken | None = None
) -> list[NodeAddress]:
    """Addresses at which the node may answer HTTP, the likeliest first."""
    found = []
    if listener.host:
        found = [(listener.host, listener.port + ABOVE_LISTENER), (listener.host, CONTAINER_PORT)]
    brokers = sorted((it.port, it.host) for it in all_listeners if it.role == "broker")
    if listener.role == "controller" and brokers:
        # A docker host cannot resolve the names of controllers, but their HTTP ports are published beside the brokers'.
        first_port, host = brokers[0]
        index = sorted(it.id for it in all_listeners if it.role == "controller").index(listener.id)
        found.append((host, first_port + CONTROLLERS_ABOVE_BROKERS + index))
    return [NodeAddress(listener.name, host, port, token) for host, port in dict.fromkeys(found) if 0 < port < 65536]


async def find_all(
    network: Network, listeners: Sequence[NodeListener], token: HttpToken | None = None
) -> list[NodeAddress]:
    """The HTTP address of each node; the likeliest one if none answers, so that its failure can be reported."""
    found: dict[str, NodeAddress] = {}

    async def find_one(listener: NodeListener) -> None:
        addresses = candidates(listener, listeners, token)
        if addresses:
            found[listener.name] = await probe(network, listener, addresses) or addresses[0]

    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(find_one, listener)
    return [found[it.name] for it in listeners if it.name in found]


async def probe(network: Network, listener: NodeListener, addresses: Sequence[NodeAddress]) -> NodeAddress | None:
    """The first address at which this very node answers."""
    for address in addresses:
        page = NodePage(network, address.host, address.port, address.token)
        with trio.move_on_after(PROBE_SECONDS):
            try:
                state = await page.get("/state")
            except NoAnswer:
                continue
            finally:
                page.close()
            if isinstance(state, Mapping) and (state.get("role"), state.get("id")) == (listener.role, listener.id):
                return address
    return None
