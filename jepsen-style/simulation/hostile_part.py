"""The hostile clients of a seed, on hosts of their own."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from barnabas.cluster.hostile.client import HostileClient
from barnabas.cluster.simulated import SimulatedCluster, current_node
from barnabas.runtime.world import World
from simulation.findings import Findings
from simulation.swarm import HostilePlan


@dataclass(slots=True)
class HostileClients:
    """The hostile clients of one run."""

    cluster: SimulatedCluster
    plan: HostilePlan
    findings: Findings
    scope: trio.CancelScope
    """Ends them."""

    async def run(self) -> None:
        with self.scope:
            await self._run()

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(1, self.plan.clients + 1):
                nursery.start_soon(self._live, f"hostile-{number}")

    async def _live(self, host: str) -> None:
        cluster, findings = self.cluster, self.findings
        brokers = [(node.node.name, node.node.port) for node in cluster.brokers]
        controllers = [(node.node.name, node.node.port) for node in cluster.controllers]

        async def live(world: World) -> None:
            current_node.set(host)
            client = HostileClient(
                world,
                cluster.universe.stream(f"hostile/{host}"),
                {"broker": brokers, "controller": controllers},
                lambda promise: findings.report(f"{host}: {promise}"),
                self.plan.pause_seconds,
            )
            try:
                await client.run()
            finally:
                for what, count in client.counts.items():
                    findings.count(f"hostile: {what}", count)

        await cluster.universe.run_node(host, live)
