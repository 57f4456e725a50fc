"""The world `local`: three brokers and three controllers, processes of this machine, without privileges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.plan import Programs
from barnabas.cluster.ports import free_base_port
from plants.node import broken
from runtime.real import real_world
from worlds.cluster import Damage, LinkFault, MessageRule
from worlds.guardian import Guardian
from worlds.looking import onlooker
from worlds.opening import WorldOptions
from worlds.processes import ProcessCluster, in_thread, run_alone

T = TypeVar("T")

DOWN_SECONDS = 10.0
_NOT_HERE = "this world has no way to do it"


class LocalWorld(ProcessCluster):
    """Processes."""

    @property
    def name(self) -> str:
        return "local"

    @property
    def cannot(self) -> Mapping[str, str]:
        off = ("partition", "slow", "lossy", "half-open", "message", "clock", "power", "disk-full", "flip")
        return dict.fromkeys((*off, "truncate", "wipe", "kill-at"), _NOT_HERE)

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    async def cut(self, source: str, target: str) -> None:
        raise ClusterError(_NOT_HERE)

    async def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        raise ClusterError(_NOT_HERE)

    async def add_rule(self, rule: MessageRule) -> int:
        raise ClusterError(_NOT_HERE)

    async def clear_rule(self, number: int) -> None:
        raise ClusterError(_NOT_HERE)

    async def heal(self) -> None:
        await trio.lowlevel.checkpoint()

    async def set_clock(self, name: str, offset_ms: int) -> None:
        raise ClusterError(_NOT_HERE)

    async def power_cut(self, name: str) -> None:
        raise ClusterError(_NOT_HERE)

    async def fill_disk(self, name: str, *, full: bool) -> None:
        raise ClusterError(_NOT_HERE)

    async def damage(self, name: str, damage: Damage) -> list[str]:
        raise ClusterError(_NOT_HERE)

    async def wipe(self, name: str) -> None:
        raise ClusterError(_NOT_HERE)

    async def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        raise ClusterError(_NOT_HERE)

    async def disarm(self, name: str) -> bool:
        raise ClusterError(_NOT_HERE)


def run_in(options: WorldOptions, main: Callable[[LocalWorld], Awaitable[T]]) -> T:
    """See `worlds.opening.run_in`."""

    async def run() -> T:
        async with local_world(options) as cluster:
            return await main(cluster)

    return run_alone(run)


@asynccontextmanager
async def local_world(options: WorldOptions) -> AsyncIterator[LocalWorld]:
    """One that is ready; with the block its processes are gone."""
    data = options.directory / "nodes"
    logs = options.directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    if not (data / "logs").exists():
        (data / "logs").symlink_to("../logs")
    programs = broken(Programs(), options.plant)
    cluster = LocalCluster(data, free_base_port(), options.settings, programs=programs)
    guardian = await in_thread(Guardian)
    try:
        guardian.end_nodes_of(cluster.layout.data / "run")
        await in_thread(cluster.up)
        layout = cluster.layout
        addresses = {node.name: (node.id, ("127.0.0.1", node.port)) for node in layout.nodes}
        async with onlooker(
            real_world(),
            {node.name: addresses[node.name] for node in layout.brokers},
            {node.name: addresses[node.name] for node in layout.controllers},
        ) as looker:
            world = LocalWorld(cluster, looker)
            await world.wait_ready()
            yield world
    finally:
        with trio.CancelScope(shield=True):
            await in_thread(lambda: cluster.down(DOWN_SECONDS))
            await in_thread(guardian.close)
