"""The world `netns`: as `local`, but each node has a network namespace and an address of its own, and what is broken
are real packets: iptables in the receiver's namespace drops them. Needs root.

Clients are on the machine itself, at the bridge's first address; the views use the second one, which is let
through. Delay, width and single messages are not to be had here: this needs netem, or the proxy of `local`.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import Layout
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.namespaced_node import Home, save_homes
from barnabas.cluster.plan import MODULES, Programs
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.proxy.rules import Way
from barnabas.runtime.network import RealNetwork, SocketConnection
from barnabas.runtime.real import real_world
from barnabas.runtime.world import Connection, DialFailed, DialRefused
from plants.node import broken
from worlds.breakable import BreakableCluster, Disks, asks_for_power, make_directories
from worlds.cluster import LinkFault, MessageRule
from worlds.guardian import Guardian
from worlds.node_views import Onlooker, onlooker
from worlds.packets import CLIENT, Packets, run
from worlds.processes import in_thread, on_free_ports
from worlds.world_options import NEVER, NO_MESSAGES, WorldOptions

T = TypeVar("T")

NODE_MODULE = "barnabas.cluster.namespaced_node"
DOWN_SECONDS = 6.0
_TRIES = 50


def reason_against() -> str | None:
    """Reason why there are no namespaces here; None if there are."""
    if os.geteuid() != 0:
        return "network namespaces need root: --cluster local breaks links without"
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            return f"{tool} is not here (apt install iproute2 iptables): --cluster local breaks links without"
    return None


class Fabric:
    """A bridge, and a namespace with a cable to it for each node."""

    def __init__(self, layout: Layout, guardian: Guardian) -> None:
        """Raises ClusterError."""
        tag = self.tag = f"{random.SystemRandom().randrange(16**5):05x}"
        """In the names of all that it is made of."""
        self._bridge = f"bnb{tag}"
        net = self._free_net()
        self.client_address, self.onlooker_address = f"{net}.1", f"{net}.2"
        self.homes = {
            node.name: Home(f"bn{tag}-{node.id}", f"{net}.{10 + number}") for number, node in enumerate(layout.nodes)
        }
        guardian.at_the_end("ip", "link", "del", self._bridge)
        run("ip", "link", "add", self._bridge, "type", "bridge")
        for address in (self.client_address, self.onlooker_address):
            run("ip", "address", "add", f"{address}/24", "dev", self._bridge)
        run("ip", "link", "set", self._bridge, "up")
        # Where docker runs, bridges are filtered, too.
        guardian.at_the_end("iptables", "-D", *self._let_through())
        run("iptables", "-I", *self._let_through())
        for number, home in enumerate(self.homes.values()):
            self._connect(home, f"bnv{tag}{number}", guardian)

    def _let_through(self) -> list[str]:
        return ["FORWARD", "-i", self._bridge, "-o", self._bridge, "-j", "ACCEPT"]

    def _connect(self, home: Home, cable: str, guardian: Guardian) -> None:
        guardian.at_the_end("ip", "netns", "del", home.namespace)
        # By itself: what a dead node's kernel still wants to send keeps the namespace, and the cable, for minutes.
        guardian.at_the_end("ip", "link", "del", cable)
        run("ip", "netns", "add", home.namespace)
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", home.namespace)
        run("ip", "link", "set", cable, "master", self._bridge, "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{home.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            run("ip", "-n", home.namespace, *words)

    @staticmethod
    def _free_net() -> str:
        taken = run("ip", "-o", "address")
        chance = random.SystemRandom()
        for _ in range(_TRIES):
            net = f"10.{chance.randrange(180, 250)}.{chance.randrange(250)}"
            if f" {net}." not in taken:
                return net
        raise ClusterError("no free addresses for a bridge")

    def packets(self) -> Packets:
        addresses = {name: home.address for name, home in self.homes.items()} | {CLIENT: self.client_address}
        return Packets(lambda name: ["ip", "netns", "exec", self.homes[name].namespace], addresses.__getitem__)


class NetnsWorld(BreakableCluster):
    """Processes in namespaces."""

    def __init__(self, cluster: LocalCluster, looker: Onlooker, disks: Disks, seed: int, fabric: Fabric) -> None:
        super().__init__(cluster, looker, disks, seed)
        self._fabric = fabric
        self._packets = fabric.packets()

    @property
    def name(self) -> str:
        return "netns"

    @property
    def tag(self) -> str:
        return self._fabric.tag

    @property
    def cannot(self) -> Mapping[str, str]:
        return {**super().cannot, **NEVER["netns"]}

    @property
    def bootstrap_servers(self) -> str:
        layout = self._cluster.layout
        return ",".join(f"{self._fabric.homes[node.name].address}:{node.port}" for node in layout.brokers)

    async def cut(self, source: str, target: str) -> None:
        self._check(source, target)
        await in_thread(lambda: self._packets.cut(source, target, is_cut=True))

    async def mend(self, source: str, target: str) -> None:
        self._check(source, target)
        await in_thread(lambda: self._packets.cut(source, target, is_cut=False))

    async def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        self._check(source, target)
        await in_thread(lambda: self._packets.set_link(source, target, fault))

    def _check(self, *names: str) -> None:
        for name in names:
            if name != CLIENT:
                self._cluster.layout.node(name)

    async def add_rule(self, rule: MessageRule) -> int:
        raise ClusterError(NO_MESSAGES)

    async def clear_rule(self, number: int) -> int | None:
        raise ClusterError(NO_MESSAGES)

    async def asked(self) -> Mapping[Way, int]:
        raise ClusterError(NO_MESSAGES)

    async def heal(self) -> None:
        await in_thread(self._packets.heal)

    async def wait_ready(self, timeout_seconds: float = 60.0) -> None:
        await self._looker.wait_ready(timeout_seconds)


class _FromAddress(RealNetwork):
    """Dials from one of this machine's addresses."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def dial(self, host: str, port: int) -> Connection:
        dialling = trio.socket.socket()
        try:
            await dialling.bind((self._address, 0))
            await dialling.connect((host, port))
        except ConnectionRefusedError as error:
            dialling.close()
            raise DialRefused(f"{host}:{port}: {error}") from error
        except OSError as error:
            dialling.close()
            raise DialFailed(f"{host}:{port}: {error}") from error
        except BaseException:
            dialling.close()
            raise
        connected = socket.socket(fileno=dialling.detach())
        connected.setblocking(False)
        return SocketConnection(connected, (host, port))


def run_in(options: WorldOptions, main: Callable[[NetnsWorld], Awaitable[T]]) -> T:
    """See `worlds.world_options.run_in`."""
    reason = reason_against()
    if reason is not None:
        raise ClusterError(reason)

    async def alone(have_ports: Callable[[], None]) -> T:
        async with netns_world(options) as cluster:
            have_ports()
            return await main(cluster)

    return on_free_ports(alone)


@asynccontextmanager
async def netns_world(options: WorldOptions) -> AsyncIterator[NetnsWorld]:
    """One that is ready; with the block its processes, namespaces, cables and rules are gone."""
    data = make_directories(options)
    programs = broken(Programs(dict.fromkeys(MODULES, NODE_MODULE)), options.plant)
    cluster = LocalCluster(data, free_base_port(), options.settings, programs=programs)
    layout = cluster.layout
    guardian = await in_thread(Guardian)
    disks: Disks | None = None
    try:
        fabric = await in_thread(lambda: Fabric(layout, guardian))
        save_homes(layout, fabric.homes)
        disks = await in_thread(lambda: Disks(layout, guardian, with_power=asks_for_power(options.faults)))
        guardian.end_nodes_of(layout.data / "run")
        await in_thread(cluster.up)
        addresses = {node.name: (node.id, (fabric.homes[node.name].address, node.port)) for node in layout.nodes}
        async with onlooker(
            replace(real_world(), network=_FromAddress(fabric.onlooker_address)),
            {node.name: addresses[node.name] for node in layout.brokers},
            {node.name: addresses[node.name] for node in layout.controllers},
        ) as looker:
            world = NetnsWorld(cluster, looker, disks, options.seed, fabric)
            await world.wait_ready()
            yield world
    finally:
        with trio.CancelScope(shield=True):
            await in_thread(lambda: _end(cluster, disks, guardian))


def _end(cluster: LocalCluster, disks: Disks | None, guardian: Guardian) -> None:
    try:
        cluster.down(DOWN_SECONDS)
        if disks is not None:
            disks.keep()
    finally:
        guardian.close()
