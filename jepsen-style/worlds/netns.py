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
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.guardian import Guardian
from barnabas.cluster.layout import Layout
from barnabas.cluster.namespaced_node import Home, save_homes
from barnabas.runtime.network import RealNetwork, SocketConnection
from barnabas.runtime.real import real_world
from barnabas.runtime.world import Connection, DialFailed, DialRefused
from barnabas.security.addresses import port_for_clients
from worlds.breakable import BreakableCluster, Wiring, opened
from worlds.links import PacketLinks
from worlds.packets import CLIENT, Packets, run
from worlds.processes import on_free_ports
from worlds.world_options import WorldOptions

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
        async with opened(options, NODE_MODULE, _connect, NetnsWorld) as cluster:
            have_ports()
            return await main(cluster)

    return on_free_ports(alone)


def _connect(layout: Layout, guardian: Guardian) -> Wiring:
    fabric = Fabric(layout, guardian)
    save_homes(layout, fabric.homes)
    hosts = {name: home.address for name, home in fabric.homes.items()}
    return Wiring(
        "netns",
        PacketLinks(fabric.packets(), hosts),
        ",".join(f"{hosts[node.name]}:{port_for_clients(layout, node)}" for node in layout.brokers),
        hosts,
        replace(real_world(), network=_FromAddress(fabric.onlooker_address)),
        tag=fabric.tag,
    )
