"""The world `local`: three brokers and three controllers, processes of this machine, with a proxy on each link.

Needs no privileges; with them it can cut the power of disks, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.cluster.guardian import Guardian
from barnabas.cluster.layout import Layout
from barnabas.cluster.proxied_node import save_ways
from barnabas.fault_proxy.driver import ProxyProcess
from barnabas.fault_proxy.rules import CLIENT
from barnabas.runtime.real import real_world
from barnabas.security.addresses import port_for_clients, port_for_nodes
from worlds.breakable import BreakableCluster, Wiring, opened
from worlds.links import ProxyLinks
from worlds.processes import on_free_ports
from worlds.world_options import WorldOptions

T = TypeVar("T")

LOCALHOST = "127.0.0.1"
NODE_MODULE = "barnabas.cluster.proxied_node"


class LocalWorld(BreakableCluster):
    """Processes and the proxy between them."""


def _connect(layout: Layout, seed: int) -> Wiring:
    brokers, controllers = ([node.name for node in nodes] for nodes in (layout.brokers, layout.controllers))
    proxy = ProxyProcess(
        {node.name: port_for_nodes(layout, node) for node in layout.nodes},
        {node.name: port_for_clients(layout, node) for node in layout.brokers},
        seed,
    )
    save_ways(layout, proxy.ports)
    return Wiring(
        "local",
        ProxyLinks(proxy, brokers, controllers),
        ",".join(f"{LOCALHOST}:{proxy.ports[CLIENT, broker]}" for broker in brokers),
        dict.fromkeys((*brokers, *controllers), LOCALHOST),
        real_world(),
        proxy.close,
    )


def run_in(options: WorldOptions, main: Callable[[LocalWorld], Awaitable[T]]) -> T:
    """See `worlds.world_options.run_in`."""

    def connect(layout: Layout, _guardian: Guardian) -> Wiring:
        return _connect(layout, options.seed)

    async def run(have_ports: Callable[[], None]) -> T:
        async with opened(options, NODE_MODULE, connect, LocalWorld) as cluster:
            have_ports()
            return await main(cluster)

    return on_free_ports(run)
