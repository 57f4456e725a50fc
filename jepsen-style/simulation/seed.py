"""One seed: a cluster comes up, serves clients while things break, and must be whole again at the end.

up, topics made ─► clients and nemesis, safety checked all along ─► in some seeds only a core is healed, and must
converge ─► healed: all must converge ─► read back
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.simulated import DATA
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.simulated.determinism import SimulationStuck
from barnabas.runtime.simulated.store import Store
from barnabas.runtime.simulated.work import WorkCounter
from barnabas.runtime.world import World
from nemeses.nemesis import Nemesis, NemesisOptions
from simulation.chances import Chances
from simulation.clients import Mortals
from simulation.cluster import SimCluster, SimSettings
from simulation.cut_off import HOST as CUT_OFF_CLIENT
from simulation.cut_off import CutOffClient
from simulation.failures import is_of_disk, place_of
from simulation.group_workload import GroupPart, Readers
from simulation.hostile_part import HostileClients
from simulation.invariants.places import PartitionKey
from simulation.invariants.work import Work
from simulation.liveness_phase import (
    Core,
    Truth,
    choose_core,
    not_converged,
    why_not_recoverable,
    writable,
)
from simulation.passing_topics import PassingTopics
from simulation.swarm import GroupPlan, Plan, draw_plan
from simulation.transaction_workload import Transactions
from simulation.watch import NodeLog, watching
from simulation.workload import Workload

LEAST_SECONDS = 60.0
LEAST_FAULTS = 3
LEAST_ACKS = 200
FAULT_PHASE_TIMEOUT_SECONDS = 240.0
"""Maximum duration of the fault phase if there are too few faults or acks."""
CATCH_UP_SECONDS = 120.0
"""Maximum time of a healed cluster for the acks that faults left no time for."""
COUNTED_SHARE = 0.1
"""The share of seeds in which the work of every step of a request is counted. Such a run takes longer."""
CONVERGENCE_SECONDS = 60.0
"""Maximum time until a healed cluster is whole again."""


@dataclass(slots=True)
class SeedReport:
    """The result of one seed."""

    seed: int
    plan: Plan
    broken: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    """Digest of everything that happened, in order."""
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    trace: list[str] = field(default_factory=list)
    """The last events before a promise was broken."""
    log: list[str] = field(default_factory=list)
    """Log lines of the nodes."""
    coverage: dict[str, Any] = field(default_factory=dict)
    """The faults that met each state: see `coverage.Coverage.table`."""

    @property
    def passed(self) -> bool:
        return not self.broken


def run_seed(
    seed: int,
    *,
    changes: Mapping[str, object] | None = None,
    log_level: int = logging.WARNING,
    hostile: bool | None = None,
) -> SeedReport:
    """Run one seed in this process. `changes` replaces fields of its plan; `hostile`: see `draw_plan`. The same
    arguments give the same report, in any process."""
    report = SeedReport(seed, Plan({}, (), (0, 0), (0, 0)))

    async def story(universe: Universe) -> None:
        report.plan = replace(draw_plan(universe.stream, hostile=hostile), **(changes or {}))  # type: ignore[arg-type]
        await _Story(universe, report, log_level).run()

    began = time.process_time()
    # What a universe leaves behind is collected at its end; looking for it meanwhile costs a fifth of the time.
    gc.collect()
    gc.disable()
    try:
        run_simulation(seed, story)
    except SimulationStuck as error:
        report.broken.append(str(error))
    finally:
        gc.enable()
    report.cpu_seconds = time.process_time() - began
    return report


class _Story:
    def __init__(self, universe: Universe, report: SeedReport, log_level: int) -> None:
        self.universe = universe
        self.report = report
        self.plan = report.plan
        self.log_level = log_level
        self._asking: World | None = None
        """The world of the client that asks brokers which are cut off, once there was one."""

    async def run(self) -> None:
        universe = self.universe
        node_log = NodeLog(universe)
        try:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nodes:
                    self.sim = SimCluster(universe, nodes, self._settings())
                    self.sim.on_broken = lambda _broken: scope.cancel()
                    self.cluster, self.watch, self.findings = self.sim.cluster, self.sim.watch, self.sim.findings
                    self.watch.partitions.first_sequence = self.plan.first_sequence
                    if universe.stream("count work").random() < COUNTED_SHARE:
                        universe.count_work = WorkCounter(Work(self.findings).took)
                        self.findings.count("runs whose steps are counted")
                    with watching(self.watch, node_log, self.log_level):
                        await self._play()
                        nodes.cancel_scope.cancel()
        finally:
            self._finish(node_log)

    def _finish(self, node_log: NodeLog) -> None:
        report, universe, findings = self.report, self.universe, self.findings
        self._judge_log(node_log)
        report.broken = findings.broken
        report.counts = dict(sorted(findings.counts.items()))
        report.digest = universe.digest()
        report.simulated_seconds = universe.time.now
        report.trace = list(universe.trace_tail)
        report.coverage = self.watch.coverage.table()
        report.log = node_log.lines

    def _settings(self) -> SimSettings:
        plan = self.plan
        return SimSettings(
            plan.settings,
            size=(plan.brokers, plan.controllers),
            features=plan.features,
            latency_ms=plan.latency_ms,
            blocking_ms=plan.blocking_ms,
            tuned=plan.inner,
            with_messages=False,
        )

    def _make_nemesis(self, clients: Sequence[str]) -> Nemesis:
        plan = self.plan
        for host in clients:
            self.sim.links.add_client(host)
        options = NemesisOptions(
            at_once=plan.faults_at_once,
            mean_seconds=plan.fault_length_seconds,
            budget=self.sim.budget,
            coordinated=[("group", group) for group in self._groups()],
            session_seconds=self._session_seconds,
            aims=plan.aims,
            while_cut_off=self._ask_while_cut_off,
        )
        kinds = [kind for kind, weight in plan.fault_weights.items() for _ in range(weight)]
        interval_seconds = plan.fault_pause_seconds * plan.faults_at_once
        chance = self.universe.stream("nemesis")
        return Nemesis(self.sim, kinds, chance, interval_seconds, self._trace_fault, options)

    def _trace_fault(self, type_: str, f: str, value: Mapping[str, Any]) -> None:
        details = {name: each for name, each in value.items() if name not in ("number", "kind")}
        self.universe.trace(f"nemesis: {value['number']} {value['kind']} {type_} {f} {details}")

    def _groups(self) -> list[str]:
        groups = [group.group_id for group in self.plan.groups]
        if self.plan.transactions is not None:
            groups.append(self.plan.transactions.transform.group_id)
        return groups

    @property
    def _session_seconds(self) -> float:
        return int(self.plan.settings["broker.session.timeout.ms"]) / 1000

    async def _ask_while_cut_off(self, name: str) -> None:
        self._asking = world = self._asking or make_world(CUT_OFF_CLIENT, self.universe)
        node, image = self.cluster.nodes[name], self.watch.quorum
        await CutOffClient(
            world, node, self._session_seconds, self._groups(), self.findings, lambda: image.image
        ).ask_on()

    async def _play(self) -> None:
        cluster, findings = self.cluster, self.findings
        workload = Workload(cluster, self.plan, findings, self.watch.partitions)
        self.parts = list(self._parts(workload))
        clients_of_all = workload.clients + tuple(client for part in self.parts for client in part.clients)
        self.nemesis = self._make_nemesis(clients_of_all)
        cluster.up()
        if not await self._within("the cluster comes up", cluster.not_ready, CONVERGENCE_SECONDS):
            return
        await workload.create_topics()
        async with trio.open_nursery() as clients:
            clients.start_soon(workload.produce)
            clients.start_soon(workload.follow)
            for part in self.parts:
                clients.start_soon(part.run)
            passing = self._passing_topics()
            if passing is not None:
                clients.start_soon(passing.run)
            hostile = self._start_hostile_clients(clients)
            await self._break_things(workload)
            hostile.cancel()
            for part in self.parts:
                part.mortals.calm.set()
            if not await self._core_stands(workload):
                return
            await self._heal()
            if not await self._within("the healed cluster converges", self._not_whole, CONVERGENCE_SECONDS):
                return
            if not await self._enough_acks(workload):
                return
            workload.stop.set()
            if passing is not None:
                passing.stop.set()
                if not await self._within("topics that passed are deleted", passing.not_done, CONVERGENCE_SECONDS):
                    return
            for part in self.parts:
                if not await self._within("all clients come to rest", part.not_settled, CONVERGENCE_SECONDS):
                    return
                part.mortals.stop.set()
        await workload.prove_alive()
        if await self._within("the replicas become equal", self._not_equal, CONVERGENCE_SECONDS):
            await workload.read_everything()
            for part in self.parts:
                if isinstance(part, Transactions):
                    await part.check_all()
            for key in self.watch.partitions.keys:
                self.watch.check_replicas(key, self._replicas(*key))
                is_shared = self.plan.hostile is not None and key.topic == GROUP_TOPIC
                self.watch.partitions.check_ended(key, may_be_open=is_shared)
        findings.count("acks", workload.history.acked)
        findings.count("raft elections", len(self.watch.quorum.leaders))
        findings.count("logs cleaned", self.universe.coverage["cleaner.log.cleaned"])

    def _start_hostile_clients(self, nursery: trio.Nursery) -> trio.CancelScope:
        """Gives what ends them."""
        scope = trio.CancelScope()
        if self.plan.hostile is not None:
            part = HostileClients(self.cluster, self.plan.hostile, self.findings, scope)
            nursery.start_soon(part.run)
        return scope

    def _parts(self, workload: Workload) -> Iterator[Readers | Transactions]:
        """The clients beside those that produce and follow."""
        plan, watch = self.plan, self.watch

        def part(group: GroupPlan, keys: list[PartitionKey]) -> tuple[GroupPart, Mortals]:
            promises = GroupPart(self.cluster, group, self.findings, watch.partitions, watch.groups, keys)
            return promises, Mortals(self.cluster, self.findings, group.mean_life_seconds)

        for group in plan.groups:
            yield Readers(*part(group, workload.keys))
        if plan.transactions is not None:
            inputs = [key for key in workload.keys if key.topic == plan.topics[0].name]
            of_group, mortals = part(plan.transactions.transform, inputs)
            yield Transactions(plan.transactions, of_group, watch.transactions, mortals, self._last_stable_offset)

    def _passing_topics(self) -> PassingTopics | None:
        pause_seconds = self.plan.passing_topics_pause_seconds
        return None if pause_seconds is None else PassingTopics(self.cluster, self.findings, pause_seconds)

    def _last_stable_offset(self, key: PartitionKey) -> int:
        image = self.watch.quorum.image.topics.partition(*key)
        log = None if image is None else self.watch.partitions.log(key, image.leader)
        return -1 if log is None else log.last_stable_offset

    async def _break_things(self, workload: Workload) -> None:
        """The fault phase: as long as the plan demands, and longer until there were enough faults and acks."""
        began = trio.current_time()
        chances = self._chances()
        least_faults = LEAST_FAULTS if self.plan.fault_weights else 0

        def missing() -> bool:
            elapsed = trio.current_time() - began
            return elapsed < self.plan.phase_seconds or (
                elapsed < FAULT_PHASE_TIMEOUT_SECONDS
                and (
                    trio.current_time() < LEAST_SECONDS
                    or self.nemesis.took_hold.total() < least_faults
                    or workload.history.acked < LEAST_ACKS
                )
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.nemesis.run)
            while missing():
                await trio.sleep(0.5)
                chances.look(workload.counts())
            nursery.cancel_scope.cancel()
        for kind, times in self.nemesis.took_hold.items():
            self.findings.count(f"fault: {kind}", times)
        if self.nemesis.took_hold.total() < least_faults:
            acted = self.nemesis.took_hold.total()
            self.findings.report(f"only {acted} faults acted in {FAULT_PHASE_TIMEOUT_SECONDS:.0f} s")
        if workload.history.acked < LEAST_ACKS:
            # No partition could have taken records for long, or `chances` would have reported it. They can when all is
            # healed.
            self.findings.count("runs whose faults left no time for acks")

    async def _enough_acks(self, workload: Workload) -> bool:
        """Lets the same clients catch up on the acks that faults left no time for."""

        def missing() -> str:
            acked = workload.history.acked
            return "" if acked >= LEAST_ACKS else f"only {acked} records were acked"

        return not missing() or await self._within("enough records are acked", missing, CATCH_UP_SECONDS)

    def _chances(self) -> Chances:
        return Chances(
            self.universe,
            self.cluster,
            self.findings,
            self.plan.blocking_ms,
            [f"producer-{index}" for index in range(self.plan.producers)],
            lambda: self.watch.quorum.image,
            lambda: self.watch.quorum.leaders,
        )

    async def _core_stands(self, workload: Workload) -> bool:
        """In some seeds: heal a core only, which must converge without the rest, if its disks allow it at all."""
        cluster, watch = self.cluster, self.watch
        chance = self.universe.stream("core")
        if chance.random() >= self.plan.core_probability:
            return True
        brokers = [node.node.id for node in cluster.brokers]
        controllers = [node.node.id for node in cluster.controllers]
        core = choose_core(chance, watch.quorum.image, brokers, controllers, watch.partitions.lossy)
        if core is None:
            self.findings.count("cores: all brokers are needed")
            return True
        self.universe.trace(f"only {core} is healed")
        rest = [name for name, node in cluster.nodes.items() if node.node.id not in core]
        for name, fate in (await self.nemesis.leave_broken(rest)).items():
            self.universe.trace(f"{name} stays {fate}")
        try:
            took = await cluster.wait_until(lambda: self._core_not_whole(core), CONVERGENCE_SECONDS)
            self.universe.trace(f"the core converges after {took:.3f} s")
            keys = [key for key in writable(watch.quorum.image, core, self._min_isr) if key in workload.keys]
            missing = "; ".join(await workload.not_alive("prover of the core", keys))
        except ClusterError as error:
            missing = f"{error}; {self._views()}"
        if not missing:
            self.findings.count("cores that converged")
            return True
        lost = why_not_recoverable(core, self._truth(), self._disk)
        if lost:
            self.universe.trace(f"the core is not recoverable: {lost}")
            self.findings.count("cores that were not recoverable")
            return True
        self.findings.report(f"{core} is stuck, and its disks have all that it needs: {missing}")
        return False

    def _core_not_whole(self, core: Core) -> str:
        for name, node in self.cluster.nodes.items():
            if node.node.id in core and not node.is_up:
                return f"{name} is not up"
        return not_converged(self.watch.quorum.image, core)

    def _min_isr(self, key: PartitionKey) -> int:
        configs = {topic.name: topic.configs for topic in self.plan.topics}
        return int(configs.get(key.topic, self.plan.settings)["min.insync.replicas"])

    def _truth(self) -> Truth:
        quorum, partitions = self.watch.quorum, self.watch.partitions
        return Truth(quorum.image, quorum.ghost, {key: partitions.ghost(key) for key in partitions.keys})

    def _disk(self, node_id: int) -> tuple[Store, str]:
        name = self.cluster.node_of(node_id).node.name
        return self.universe.disk(name), f"/{name}/{DATA}"

    async def _heal(self) -> None:
        self.universe.trace("healing")
        await self.nemesis.undo_all()

    async def _within(self, promise: str, what_is_missing: Callable[[], str], seconds: float) -> bool:
        try:
            took = await self.cluster.wait_until(what_is_missing, seconds)
        except ClusterError as error:
            self.findings.report(f"{promise}: {error}; {self._views()}")
            return False
        self.universe.trace(f"{promise} after {took:.3f} s")
        return True

    # ---- what a whole cluster is

    def _replicas(self, topic: str, index: int) -> tuple[int, ...]:
        image = self.watch.quorum.image.topics.partition(topic, index)
        return () if image is None else image.replicas

    def _not_whole(self) -> str:
        """Everybody up and unfenced, every partition led, every replica in its ISR."""
        missing = self.cluster.not_ready()
        if missing:
            return missing
        for topic in self.watch.quorum.image.topics.by_name.values():
            for index, partition in topic.partitions.items():
                if partition.leader == NO_LEADER or set(partition.isr) != set(partition.replicas):
                    members = f"ISR {partition.isr} of {partition.replicas}"
                    return f"{topic.name}-{index} has leader {partition.leader}, {members}"
        return ""

    def _views(self) -> str:
        """Every replica that is not led by the book, as its broker sees it."""
        views = []
        for node in self.cluster.brokers:
            for partition in node.broker.partitions if node.broker is not None else ():
                image = self.watch.quorum.image.topics.partition(partition.topic, partition.index)
                if image is None or len(image.isr) < len(image.replicas):
                    views.append(f"broker {node.node.id}: {partition}, {partition.follower.describe()}")
        return "; ".join(views)

    def _not_equal(self) -> str:
        """Every replica's log ends where the high watermark is, on all of them."""
        missing = self._not_whole()
        if missing:
            return missing
        promises = self.watch.partitions
        for key in promises.keys:
            end = promises.ghost(key).end_offset
            for node_id in self._replicas(*key):
                log = promises.log(key, node_id)
                if log is None or log.log_end_offset != end or log.high_watermark != end:
                    return f"{key} on {node_id}: {log}, committed is up to {end}"
        return ""

    # ---- what nodes must not do

    def _judge_log(self, node_log: NodeLog) -> None:
        for node, message, error in node_log.errors:
            if node in self.universe.hosts and error is not None and is_of_disk(error):
                continue
            self.findings.report(f"logged as an error: {message} {error!r}{place_of(error)}")
