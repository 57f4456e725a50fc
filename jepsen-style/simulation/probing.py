"""The nemesis of a simulated run, with the probes that its conditions ask for.

While the nemesis breaks things, `chances` looks whether partitions take records when they can, a client asks brokers
that are cut off, and an administrator makes and deletes topics. Before all is healed, a core may have to work alone:

    faults and probes ─► (a core is healed, and must converge) ─► all is healed, and must converge ─► rest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.simulated import DATA
from barnabas.runtime.simulated.store import Store
from barnabas.runtime.world import World
from nemeses.nemesis import Nemesis
from running.runner import Report
from simulation.at_rest import (
    CONVERGENCE_SECONDS,
    PROBED,
    check_rest,
    make_probed_topic,
    not_acked,
    not_whole,
    within,
)
from simulation.chances import Chances
from simulation.cluster import SimCluster
from simulation.conditions import Conditions
from simulation.cut_off import HOST as CUT_OFF_CLIENT
from simulation.cut_off import CutOffClient
from simulation.liveness_phase import Core, Truth, choose_core, not_converged, why_not_recoverable, writable
from simulation.passing_topics import PassingTopics
from simulation.witness import Tally

LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Probes:
    """The probes of one run. A `running.runner.Nemesis` around another."""

    cluster: SimCluster
    nemesis: Nemesis
    conditions: Conditions
    clients: Sequence[str]
    """The hosts of the workload's clients."""
    groups: Sequence[str]
    """Groups of the workload."""
    tally: Tally
    _passing: PassingTopics | None = field(init=False)

    def __post_init__(self) -> None:
        pause_seconds = self.conditions.passing_topics
        self._passing = None if pause_seconds is None else PassingTopics(self.cluster, pause_seconds)
        self.nemesis.while_cut_off = self._ask_while_cut_off

    async def run(self, report: Report) -> None:
        """See `running.runner.Nemesis`."""
        if self.conditions.core:
            await make_probed_topic(self.cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.nemesis.run, report)
            nursery.start_soon(self._look)
            if self._passing is not None:
                nursery.start_soon(self._passing.run)

    async def undo(self, report: Report) -> None:
        """See `running.runner.Nemesis`."""
        self._count_faults()
        if self.conditions.core:
            await self._heal_core()
        await self.nemesis.undo(report)
        await within(self.cluster, "the healed cluster converges", lambda: not_whole(self.cluster))
        if self._passing is not None:
            await self._passing.end()

    async def check_rest(self) -> None:
        await check_rest(self.cluster, shared_groups="hostile" in self.nemesis.kinds)

    def _count_faults(self) -> None:
        findings = self.cluster.findings
        for kind, times in self.nemesis.took_hold.items():
            findings.count(f"fault: {kind}", times)
        for what, times in self.nemesis.counts.items():
            findings.count(what, times)
        findings.count("raft elections", len(self.cluster.watch.quorum.leaders))
        findings.count("logs cleaned", self.cluster.universe.coverage["cleaner.log.cleaned"])

    async def _look(self) -> None:
        cluster = self.cluster
        quorum = cluster.watch.quorum
        chances = Chances(
            cluster.universe,
            cluster.cluster,
            cluster.findings,
            cluster.blocking_ms,
            self.clients,
            lambda: quorum.image,
            # The members of a quorum that changes are not all its controllers.
            lambda: quorum.leaders if self.conditions.voters is None else {},
        )
        while True:
            await trio.sleep(LOOK_SECONDS)
            chances.look(self.tally.counts())

    async def _ask_while_cut_off(self, name: str) -> None:
        cluster, seconds = self.cluster, self.nemesis.options.session_seconds
        quorum = cluster.watch.quorum
        world: World = cluster.world(CUT_OFF_CLIENT)
        node = cluster.cluster.nodes[name]
        await CutOffClient(world, node, seconds, self.groups, cluster.findings, lambda: quorum.image).ask_on()

    # ---- the core

    async def _heal_core(self) -> None:
        """Heals a core only, which must converge without the rest, if its disks allow it at all."""
        cluster, watch, nodes = self.cluster, self.cluster.watch, self.cluster.cluster
        brokers = [node.node.id for node in nodes.brokers]
        controllers = [node.node.id for node in nodes.controllers]
        chance = cluster.universe.stream("core")
        core = choose_core(chance, watch.quorum.image, brokers, controllers, watch.partitions.lossy)
        if core is None:
            cluster.findings.count("cores: all brokers are needed")
            return
        cluster.universe.trace(f"only {core} is healed")
        rest = [name for name, node in nodes.nodes.items() if node.node.id not in core]
        for name, fate in (await self.nemesis.leave_broken(rest)).items():
            cluster.universe.trace(f"{name} stays {fate}")
        try:
            took = await nodes.wait_until(lambda: self._core_not_whole(core), CONVERGENCE_SECONDS)
            cluster.universe.trace(f"the core converges after {took:.3f} s")
            keys = [key for key in writable(watch.quorum.image, core, watch.min_isr) if key.topic == PROBED]
            missing = "; ".join(await not_acked(cluster, keys))
        except ClusterError as error:
            missing = str(error)
        if not missing:
            cluster.findings.count("cores that converged")
            return
        lost = why_not_recoverable(core, self._truth(), self._disk)
        if lost:
            cluster.universe.trace(f"the core is not recoverable: {lost}")
            cluster.findings.count("cores that were not recoverable")
            return
        cluster.findings.report(f"{core} is stuck, and its disks have all that it needs: {missing}")

    def _core_not_whole(self, core: Core) -> str:
        for name, node in self.cluster.cluster.nodes.items():
            if node.node.id in core and not node.is_up:
                return f"{name} is not up"
        return not_converged(self.cluster.watch.quorum.image, core)

    def _truth(self) -> Truth:
        quorum, partitions = self.cluster.watch.quorum, self.cluster.watch.partitions
        return Truth(quorum.image, quorum.ghost, {key: partitions.ghost(key) for key in partitions.keys})

    def _disk(self, node_id: int) -> tuple[Store, str]:
        name = self.cluster.cluster.node_of(node_id).node.name
        return self.cluster.universe.disk(name), f"/{name}/{DATA}"
