"""Clients of a run: each on a host of its own, where it may be killed between any two steps and come again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from barnabas.client.cluster import Cluster, ClusterSettings
from barnabas.client.producer import ProducerOptions
from barnabas.cluster.simulated import SimulatedCluster, current_node
from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.world import World
from simulation.findings import Findings

CLIENT_SETTINGS = ClusterSettings(
    request_timeout_ms=3_000, retry_backoff_ms=50, socket_connection_setup_timeout_ms=1_000
)


def producer_options(cluster: SimulatedCluster) -> ProducerOptions:
    """Options that all producers of a run share."""
    return {
        "bootstrap_servers": [f"{host}:{port}" for host, port in cluster.bootstrap],
        "linger_ms": 5,
        "request_timeout_ms": CLIENT_SETTINGS.request_timeout_ms,
        "retry_backoff_ms": CLIENT_SETTINGS.retry_backoff_ms,
        "socket_connection_setup_timeout_ms": CLIENT_SETTINGS.socket_connection_setup_timeout_ms,
    }


ClientMain = Callable[[World, Cluster], Awaitable[None]]


async def as_client(cluster: SimulatedCluster, host: str, main: ClientMain) -> bool:
    """Run `main` with a client of its own on `host`; False if it was killed."""

    async def live(world: World) -> None:
        current_node.set(host)
        async with cluster.client(world, CLIENT_SETTINGS) as client:
            await main(world, client)

    return await cluster.universe.run_node(host, live)


def chance_of_life(cluster: SimulatedCluster, host: str) -> Stream:
    """For what the client on `host` does in the life that it is in. The next life has another, or it would do the same
    again: as long a stay, by the same protocol.
    """
    universe = cluster.universe
    return universe.stream(f"workload/{host}/{universe.host(host).lives}")


@dataclass(slots=True)
class Mortals:
    """Clients that are killed now and then, and come again."""

    cluster: SimulatedCluster
    findings: Findings
    mean_life_seconds: float
    calm: trio.Event = field(default_factory=trio.Event)
    """Set: no client is killed from now on."""
    stop: trio.Event = field(default_factory=trio.Event)
    """Set: everybody ends, in good order."""

    async def lives(self, host: str, kind: str, main: ClientMain, on_end: Callable[[], None]) -> None:
        """Runs one life after the other until `stop`. `main` returns at `stop` or earlier; `on_end` is called at the
        end of each life, for a kill at the moment of the kill.
        """
        chance = self.cluster.universe.stream(f"life/{host}")
        while not self.stop.is_set():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._kill_later, host, kind, chance, on_end)
                await as_client(self.cluster, host, main)
                on_end()
                nursery.cancel_scope.cancel()
            with trio.move_on_after(chance.uniform(0.0, 2.0)):
                await self.stop.wait()

    async def _kill_later(self, host: str, kind: str, chance: Stream, on_end: Callable[[], None]) -> None:
        await trio.sleep(chance.expovariate(1.0 / self.mean_life_seconds))
        if not self.calm.is_set():
            self.findings.count(f"kills of {kind}")
            self.cluster.universe.trace(f"{host} is killed")
            self.cluster.universe.kill(host)
            on_end()
