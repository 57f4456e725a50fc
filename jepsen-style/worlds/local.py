"""The world `local`: three brokers and three controllers, processes of this machine, with a proxy on each link.

Needs no privileges; with them it can cut the power of disks, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import trio

from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.proxied_node import save_ways
from barnabas.cluster.proxy.driver import ProxyProcess
from barnabas.cluster.proxy.rules import CLIENT, LinkState, Way
from barnabas.cluster.proxy.rules import MessageRule as ProxyRule
from barnabas.runtime.real import real_world
from worlds.breakable import BreakableCluster, Disks, asks_for_power, make_directories, programs_of
from worlds.cluster import LinkFault, MessageRule
from worlds.guardian import Guardian
from worlds.node_views import Onlooker, onlooker
from worlds.processes import in_thread, on_free_ports
from worlds.world_options import WorldOptions

T = TypeVar("T")

DOWN_SECONDS = 6.0


class LocalWorld(BreakableCluster):
    """Processes and the proxy between them."""

    def __init__(self, cluster: LocalCluster, looker: Onlooker, disks: Disks, seed: int, proxy: ProxyProcess) -> None:
        super().__init__(cluster, looker, disks, seed)
        self._proxy = proxy

    @property
    def name(self) -> str:
        return "local"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self._proxy.ports[CLIENT, broker]}" for broker in self.brokers)

    async def cut(self, source: str, target: str) -> None:
        await self._set(source, target, cut=True)

    async def mend(self, source: str, target: str) -> None:
        await self._set(source, target, cut=False)

    async def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        await self._set(source, target, **asdict(fault))

    async def _set(self, source: str, target: str, **changes: Any) -> None:
        if not self._is_way(source, target):
            return

        def change() -> None:
            state: LinkState = replace(self._proxy.link(source, target), **changes)
            self._proxy.set_link(source, target, state)

        await in_thread(change)

    def _is_way(self, source: str, target: str) -> bool:
        """Clients do not speak to controllers: there is nothing to break."""
        for name in (source, target):
            if name != CLIENT:
                self._cluster.layout.node(name)
        return CLIENT not in (source, target) or bool({source, target} & {*self.brokers})

    async def add_rule(self, rule: MessageRule) -> int:
        return await in_thread(lambda: self._proxy.add_rule(ProxyRule(**asdict(rule))))

    async def clear_rule(self, number: int) -> int:
        return await in_thread(lambda: self._proxy.clear_rule(number))

    async def asked(self) -> Mapping[Way, int]:
        return await in_thread(self._proxy.asked)

    async def heal(self) -> None:
        await in_thread(self._proxy.heal)


def run_in(options: WorldOptions, main: Callable[[LocalWorld], Awaitable[T]]) -> T:
    """See `worlds.world_options.run_in`."""

    async def run(have_ports: Callable[[], None]) -> T:
        async with local_world(options) as cluster:
            have_ports()
            return await main(cluster)

    return on_free_ports(run)


@asynccontextmanager
async def local_world(options: WorldOptions) -> AsyncIterator[LocalWorld]:
    """One that is ready; with the block its processes and mounts are gone."""
    data = make_directories(options)
    cluster = LocalCluster(data, free_base_port(), options.settings, programs=programs_of(options))
    layout = cluster.layout
    guardian = await in_thread(Guardian)
    proxy: ProxyProcess | None = None
    disks: Disks | None = None
    try:
        nodes = {node.name: node.port for node in layout.nodes}
        brokers = [node.name for node in layout.brokers]
        proxy = await in_thread(lambda: ProxyProcess(nodes, brokers, options.seed))
        save_ways(layout, proxy.ports)
        disks = await in_thread(lambda: Disks(layout, guardian, with_power=asks_for_power(options.faults)))
        guardian.end_nodes_of(layout.data / "run")
        await in_thread(cluster.up)
        addresses = {node.name: (node.id, ("127.0.0.1", node.port)) for node in layout.nodes}
        async with onlooker(
            real_world(),
            {node.name: addresses[node.name] for node in layout.brokers},
            {node.name: addresses[node.name] for node in layout.controllers},
        ) as looker:
            world = LocalWorld(cluster, looker, disks, options.seed, proxy)
            await world.wait_ready()
            yield world
    finally:
        with trio.CancelScope(shield=True):
            await in_thread(lambda: _end(cluster, proxy, disks, guardian))


def _end(cluster: LocalCluster, proxy: ProxyProcess | None, disks: Disks | None, guardian: Guardian) -> None:
    """Everything goes, also if part of it has gone already."""
    try:
        if proxy is not None:
            # Nodes speak to each other to leave in good order.
            proxy.heal()
        cluster.down(DOWN_SECONDS)
        if disks is not None:
            disks.keep()
    finally:
        if proxy is not None:
            proxy.close()
        guardian.close()
    _forget(cluster.layout.data / "volumes")


def _forget(directory: Path) -> None:
    if directory.exists() and not any(directory.iterdir()):
        directory.rmdir()
