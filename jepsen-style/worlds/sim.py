"""The simulated cluster under test: one process, virtual time, and the same run bit for bit from the same seed.

Every promise of `simulation` is watched while the run goes on. What was broken, and what was covered,
stands in `promises.json` and `coverage.json` of the run directory, and `on_broken` is told at once. Clients live on
hosts of their own, named by whoever asks for their world, so that their links can be broken, too.
"""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.fault_points import DISK_POINTS
from barnabas.cluster.layout import LOCAL_SHAPE
from barnabas.cluster.proxy.rules import MessageRule as ProxyRule
from barnabas.cluster.proxy.rules import Way
from barnabas.cluster.simulated import DATA, SimulatedCluster, SimulatedNode, current_node
from barnabas.testing.cluster import QUICK_GROUPS
from broker.coordinator.coordinator import partition_for
from broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from broker.replication.replica import Leading
from histories.whole import write_whole
from loss_budget import Membership, NodeState
from operations import Place
from plants.catalogue import find
from plants.plant import planted
from protocol.errors import ErrorCode
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from runtime.channel import Channel, ChannelError
from runtime.simulated import Universe, make_world, run_simulation
from runtime.simulated.clocks import SimulatedClock
from runtime.simulated.determinism import SimulationStuck
from runtime.simulated.store import DEFAULT_CAPACITY_BYTES
from runtime.simulated.universe import WALL_START_MS
from runtime.world import World
from simulation.coverage import Coverage
from simulation.failures import describe, is_of_disk, place_of
from simulation.findings import Findings
from simulation.messages import MessageFaults
from simulation.watch import NodeLog, Watch, watching
from storage.names import METADATA_TOPIC
from worlds.cluster import FAULTS, Damage, LinkFault, MessageRule, ReplicaView
from worlds.opening import WorldOptions
from worlds.sim_damage import damage_store
from worlds.sim_links import SimLinks

T = TypeVar("T")

LATENCIES_MS = ((0.1, 0.2), (0.3, 1.0), (1.0, 5.0))
"""(least, mean of what comes on top): a seed has one of these."""
BLOCKING_MS = ((0.2, 1.0), (1.0, 4.0), (5.0, 20.0))
"""The same, of syncs."""
READY_SECONDS = 60.0
STOP_SECONDS = 40.0
"""A node that does not leave in good order within this time is killed."""
FREE_WHEN_FULL_BYTES = 100
ONLOOKER = "onlooker"
"""Where questions of this class come from; no fault is between it and the nodes."""
CALL_MS = 5_000
VOTERS = "controller.quorum.voters="


class _NodeLog(NodeLog):
    """Also keeps what each node says, in the form of a real node's log."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(universe)
        self.said: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        moment = datetime.fromtimestamp(_wall_ms(self._universe) / 1000.0, UTC).isoformat(timespec="milliseconds")
        line = f"{moment.removesuffix('+00:00')}Z {record.levelname:<7} {record.name}: {record.getMessage()}"
        self.said.setdefault(current_node.get(), []).append(line)


class SimCluster:
    """`ClusterUnderTest` in a universe."""

    name = "sim"
    more_points = DISK_POINTS
    """Fault points of the disks, for `kill-at` and `pause-at`; by role."""

    def __init__(self, universe: Universe, nursery: trio.Nursery, options: WorldOptions) -> None:
        self.universe = universe
        self.findings = Findings(lambda: universe.time.now)
        self.coverage = Coverage(universe, tuple(kind for kind in FAULTS if kind not in self.cannot))
        settings = {**QUICK_GROUPS, **options.settings}
        self.cluster = SimulatedCluster(universe, nursery, settings, _shape(options))
        self.watch = Watch(universe, self.findings, self.cluster, self.coverage)
        self.links = SimLinks(universe, list(self.cluster.nodes))
        self.messages = MessageFaults(universe, self.links.name_of)
        self.began = 0.0
        self.on_broken: Callable[[str], None] | None = None
        """Told of each broken promise, in one line, when it is found."""
        self._told = 0
        self._worlds: dict[str, World] = {}
        self._onlooker: World
        self._offsets_ms: dict[str, int] = {}
        self._touched_disks: dict[str, None] = {}
        self._points: dict[str, str] = {}
        self._freezes: dict[str, bool] = {}
        """By node: whether it freezes where it is armed, and does not end."""
        self._struck: dict[str, bool] = {}
        chance = universe.stream("world")
        universe.wires.latency_ms = chance.choice(LATENCIES_MS)
        blocking_ms = chance.choice(BLOCKING_MS)
        for name in self.cluster.nodes:
            universe.host(name).blocking_ms = blocking_ms
        self.cluster.on_failure = self._node_failed
        self.findings.on_broken = self._tell
        universe.on_strike = self._strike

    @property
    def cannot(self) -> Mapping[str, str]:
        return {}

    @property
    def brokers(self) -> Sequence[str]:
        return [node.node.name for node in self.cluster.brokers]

    @property
    def controllers(self) -> Sequence[str]:
        return [node.node.name for node in self.cluster.controllers]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.cluster.bootstrap)

    def world(self, host: str) -> World:
        world = self._worlds.get(host)
        if world is None or not self.universe.is_alive(host):
            if host in self.cluster.nodes:
                raise ClusterError(f"{host} is a node of the cluster, no client can live there")
            clocks = self.universe.host(host)
            clocks.wall_clock = SimulatedClock(self.universe.time, WALL_START_MS, 0.0)
            clocks.monotonic = SimulatedClock(self.universe.time, 0.0, 0.0)
            world = self._worlds[host] = make_world(host, self.universe)
            self.links.add_client(host)
        return world

    def now_ns(self) -> int:
        return round((self.universe.time.now - self.began) * 1e9)

    def wall_ms(self) -> int:
        return _wall_ms(self.universe)

    # ---- nodes

    async def kill(self, *names: str) -> None:
        for node in self._known(*names):
            self.coverage.strike("kill", node)
            self.cluster.kill(node.node.name)
        await self._ended(*names)

    async def start(self, *names: str) -> None:
        for node in self._known(*names):
            name = node.node.name
            await node.ended.wait()
            self._touched_disks.pop(name, None)
            self.cluster.start(name)

    async def stop(self, name: str) -> None:
        [node] = self._known(name)
        self.coverage.strike("stop", node)
        with trio.move_on_after(STOP_SECONDS):
            await self.cluster.stop(name)
        if node.running:
            self.cluster.kill(name)
        await self._ended(name)

    async def pause(self, name: str) -> None:
        """As a frozen process looks from outside: nothing leaves it, nothing comes in, and nothing is lost."""
        [node] = self._known(name)
        self.coverage.strike("pause", node)
        self.links.pause(name)

    async def resume(self, name: str) -> None:
        self._known(name)
        self.links.resume(name)

    async def unregister(self, name: str) -> None:
        node = self._at_rest(name)
        self.coverage.strike("membership", node)
        controller = await self.active_controller()
        if controller is None:
            raise ClusterError(f"{name} cannot be unregistered: there is no active controller")
        if not self.universe.is_alive(ONLOOKER):
            self._onlooker = make_world(ONLOOKER, self.universe)
        async with trio.open_nursery() as nursery:
            port = self.cluster.nodes[controller].node.port
            channel = Channel(self._onlooker, nursery, controller, port, client_id=ONLOOKER)
            try:
                answer = await channel.call(UnregisterBrokerRequest(broker_id=node.node.id), timeout_ms=CALL_MS)
                told = "" if not answer.error_code else ErrorCode(answer.error_code).name
            except ChannelError as error:
                told = str(error)
            nursery.cancel_scope.cancel()
        if told:
            raise ClusterError(f"{name} cannot be unregistered: {controller} says {told}")

    async def states(self) -> Mapping[str, NodeState]:
        return {name: self._state(node) for name, node in self.cluster.nodes.items()}

    # ---- links

    async def cut(self, source: str, target: str) -> None:
        self._strike_link("partition", source, target)
        self.links.cut(source, target)

    async def mend(self, source: str, target: str) -> None:
        self.links.mend(source, target)

    async def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        if fault.half_open:
            self._strike_link("half-open", source, target)
        if fault.loss or fault.reset_after_bytes:
            self._strike_link("lossy", source, target)
        if fault.latency_ms or fault.jitter_ms or fault.bytes_per_second:
            self._strike_link("slow", source, target)
        self.links.worsen(source, target, fault)

    async def add_rule(self, rule: MessageRule) -> int:
        for end in dict.fromkeys((rule.source, rule.target)):
            if end in self.cluster.nodes:
                self.coverage.strike("message", self.cluster.nodes[end])
        return self.messages.add(ProxyRule(**asdict(rule)))

    async def clear_rule(self, number: int) -> int:
        return self.messages.clear(number)

    async def asked(self) -> Mapping[Way, int]:
        return self.messages.asked()

    async def heal(self) -> None:
        self.links.heal()
        self.messages.heal()

    # ---- clocks and disks

    async def set_clock(self, name: str, offset_ms: int) -> None:
        [node] = self._known(name)
        if offset_ms:
            self.coverage.strike("clock", node)
        self.universe.host(name).wall_clock.jump(offset_ms - self._offsets_ms.get(name, 0))
        self._offsets_ms[name] = offset_ms

    async def power_cut(self, name: str) -> None:
        [node] = self._known(name)
        self.coverage.strike("power", node)
        self._lost_something(node)
        self.cluster.power_cut(name)
        await self._ended(name)

    async def fill_disk(self, name: str, *, full: bool) -> None:
        [node] = self._known(name)
        store = self.universe.disk(name)
        if full:
            self.coverage.strike("disk-full", node)
            self._touched_disks[name] = None
            store.capacity_bytes = store.used_bytes + FREE_WHEN_FULL_BYTES
        else:
            store.capacity_bytes = DEFAULT_CAPACITY_BYTES

    async def damage(self, name: str, damage: Damage) -> Sequence[str]:
        node = self._at_rest(name)
        chance = self.universe.stream(f"damage/{name}/{self.now_ns()}")
        told = damage_store(self.universe.disk(name), f"/{name}/{DATA}", damage, chance)
        if told:
            self._touched_disks[name] = None
            self.coverage.strike(damage.kind, node)
            # A broker's copy of the metadata has no vote, and is fetched again from wherever it ends.
            whole_disk = any(METADATA_TOPIC in line for line in told)
            self._lost_something(node, whole_disk=whole_disk, flushed_too=True)
        return told

    async def wipe(self, name: str) -> None:
        node = self._at_rest(name)
        self.coverage.strike("wipe", node)
        self.universe.disk(name).wipe()
        self._lost_something(node, whole_disk=True)

    async def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        self._arm(name, point, freezes=False, power_cut=power_cut)

    async def pause_at(self, name: str, point: str) -> None:
        self._arm(name, point, freezes=True)

    def _arm(self, name: str, point: str, *, freezes: bool, power_cut: bool = False) -> None:
        self._known(name)
        self._points[name] = point
        self._freezes[name] = freezes
        self._struck[name] = False
        self.universe.kill_at(name, point, power_cut=power_cut)

    async def disarm(self, name: str) -> bool:
        self._known(name)
        self.universe.disarm(name)
        return self._struck.pop(name, False)

    # ---- looking

    async def leader_of(self, place: Place) -> str | None:
        return self._leader(place.topic, place.partition)

    async def active_controller(self) -> str | None:
        leaders = self.watch.quorum.leaders
        if not leaders:
            return None
        node = self.cluster.node_of(leaders[max(leaders)])
        return node.node.name if node.is_up else None

    async def coordinator_of(self, kind: Literal["group", "transaction"], id_: str) -> str | None:
        topic = GROUP_TOPIC if kind == "group" else TRANSACTION_TOPIC
        image = self.watch.quorum.image.topics.by_name.get(topic)
        return None if image is None else self._leader(topic, partition_for(id_, len(image.partitions)))

    async def views(self) -> Sequence[ReplicaView]:
        views = []
        for node in self.cluster.brokers:
            name = node.node.name
            if node.broker is None or self._state(node) != "running":
                continue
            for partition in sorted(node.broker.partitions, key=lambda each: (each.topic, each.index)):
                if partition.topic.startswith("__"):
                    continue
                replica = partition.replica
                image = node.broker.metadata.partition(partition.topic, partition.index)
                known = () if image is None else image.isr
                isr = tuple(sorted(replica.isr)) if isinstance(replica.role, Leading) else tuple(known)
                place = Place(partition.topic, partition.index)
                ends = replica.high_watermark, replica.log_end_offset
                views.append(ReplicaView(name, place, *ends, replica.leader_epoch, replica.leader_id, isr))
        return views

    async def memberships(self) -> Sequence[Membership]:
        told = []
        for node in self.cluster.brokers:
            if node.broker is None or self._state(node) != "running":
                continue
            for partition in sorted(node.broker.partitions, key=lambda each: (each.topic, each.index)):
                image = node.broker.metadata.partition(partition.topic, partition.index)
                if image is not None:
                    place = Place(partition.topic, partition.index)
                    members = (self._names(image.replicas), self._names(image.isr), self._names(image.elr))
                    told.append(Membership(node.node.name, place, *members))
        return told

    async def wait_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        await self.cluster.wait_ready(timeout_seconds)

    def log_files(self) -> Mapping[str, Path]:
        return {}

    # ---- inside

    def _known(self, *names: str) -> list[SimulatedNode]:
        for name in names:
            if name not in self.cluster.nodes:
                raise ClusterError(f"there is no node {name}; there are {', '.join(self.cluster.nodes)}")
        return [self.cluster.nodes[name] for name in names]

    def _names(self, node_ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.cluster.node_of(node_id).node.name for node_id in node_ids)

    def _at_rest(self, name: str) -> SimulatedNode:
        [node] = self._known(name)
        if node.running:
            raise ClusterError(f"{name} runs: stop or kill it before its files are touched")
        return node

    async def _ended(self, *names: str) -> None:
        for name in names:
            await self.cluster.nodes[name].ended.wait()
            self.links.resume(name)

    def _state(self, node: SimulatedNode) -> NodeState:
        if not node.running:
            return "dead"
        return "paused" if node.node.name in self.links.paused else "running"

    def _leader(self, topic: str, index: int) -> str | None:
        image = self.watch.quorum.image.topics.partition(topic, index)
        return None if image is None or image.leader < 0 else self.cluster.node_of(image.leader).node.name

    def _strike_link(self, fault: str, *ends: str) -> None:
        for end in ends:
            if end in self.cluster.nodes:
                self.coverage.strike(fault, self.cluster.nodes[end])

    def _strike(self, name: str, power_cut: bool) -> bool | None:
        node = self.cluster.nodes[name]
        self._struck[name] = True
        if self._freezes[name]:
            self.coverage.strike("pause-at", node, self._points[name])
            self.links.pause(name)
            return None
        self.coverage.strike("kill-at", node, self._points[name])
        if power_cut:
            self._lost_something(node)
        return power_cut

    def _lost_something(self, node: SimulatedNode, *, whole_disk: bool = False, flushed_too: bool = False) -> None:
        if node.node.is_broker:
            self.watch.broker_lost_something(node.node.id, whole_disk=whole_disk, flushed_too=flushed_too)

    def _node_failed(self, name: str, error: BaseException) -> None:
        if name in self._touched_disks and is_of_disk(error):
            self.findings.count("nodes that gave up their disk")
            return
        self.findings.report(f"{name} ended by itself: {describe(error)}")

    def judge_log(self, node_log: NodeLog) -> None:
        """An error that a node logged together with an exception is a broken promise, unless a disk explains it."""
        for node, message, error in node_log.errors:
            if node in self.cluster.nodes and (error is None or not is_of_disk(error)):
                self.findings.report(f"logged as an error: {message} {error!r}{place_of(error)}")

    def _tell(self) -> None:
        if self.on_broken is not None and len(self.findings.broken) > self._told:
            self._told = len(self.findings.broken)
            self.on_broken(self.findings.broken[-1])


def _shape(options: WorldOptions) -> Path:
    """The folder of the nodes' settings: the usual one, or a copy with fewer nodes."""
    if not options.without_nodes:
        return LOCAL_SHAPE
    folder = options.directory / "shape"
    folder.mkdir(parents=True, exist_ok=True)
    gone = [name.rpartition("-")[2] for name in options.without_nodes if "controller" in name]
    for path in sorted(LOCAL_SHAPE.glob("*.properties")):
        if path.stem in options.without_nodes:
            continue
        text = path.read_text(encoding="utf-8")
        [line] = [each for each in text.splitlines() if each.startswith(VOTERS)]
        voters = [each for each in line.removeprefix(VOTERS).split(",") if each.partition("@")[0] not in gone]
        (folder / path.name).write_text(text.replace(line, VOTERS + ",".join(voters)), encoding="utf-8")
    return folder


def run_in(options: WorldOptions, main: Callable[[SimCluster], Awaitable[T]]) -> T:
    """See `worlds.opening.run_in`."""
    began = time.process_time()
    outcome: list[T] = []
    # Objects that the collector ends while a run goes on would end at another moment in the next.
    gc.collect()
    gc.disable()
    try:
        with planted(find(options.plant)):
            run_simulation(options.seed, _story, options, main, outcome, began)
    except SimulationStuck as error:
        raise ClusterError(str(error)) from error
    finally:
        gc.enable()
    return outcome[0]


async def _story(
    universe: Universe,
    options: WorldOptions,
    main: Callable[[SimCluster], Awaitable[T]],
    outcome: list[T],
    began: float,
) -> None:
    failure: BaseException | None = None
    node_log = _NodeLog(universe)
    async with trio.open_nursery() as nursery:
        cluster = SimCluster(universe, nursery, options)
        with watching(cluster.watch, node_log, logging.INFO):
            cluster.cluster.up()
            try:
                await cluster.wait_ready()
                cluster.began = universe.time.now
                outcome.append(await main(cluster))
            except trio.Cancelled:
                raise
            except BaseException as error:
                failure = error
            nursery.cancel_scope.cancel()
    cluster.judge_log(node_log)
    _write_down(options.directory, cluster, node_log, time.process_time() - began)
    if failure is not None:
        raise failure


def _write_down(directory: Path, cluster: SimCluster, node_log: _NodeLog, cpu_seconds: float) -> None:
    findings, universe = cluster.findings, cluster.universe
    struck = sum(cluster.coverage.struck.values())
    promises: dict[str, Any] = {
        "kept": not findings.broken,
        "broken": findings.broken,
        "counts": dict(sorted(findings.counts.items())),
        "digest": universe.digest(),
        "simulated_seconds": round(universe.time.now, 3),
        "nodes_struck": struck,
        "cpu_seconds": round(cpu_seconds, 2),
        "simulated_seconds_per_cpu_second": round(universe.time.now / max(cpu_seconds, 1e-9), 1),
        "nodes_struck_per_cpu_second": round(struck / max(cpu_seconds, 1e-9), 2),
    }
    logs = {name: "".join(f"{line}\n" for line in node_log.said.get(name, ())) for name in cluster.cluster.nodes}
    try:
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        write_whole(directory / "promises.json", json.dumps(promises, indent=2) + "\n")
        write_whole(directory / "coverage.json", json.dumps(cluster.coverage.table()) + "\n")
        for name, said in logs.items():
            write_whole(directory / "logs" / f"{name}.log", said)
    except OSError as error:
        raise ClusterError(f"{directory}: {error.strerror}: not everything that nodes said is kept") from error


def _wall_ms(universe: Universe) -> int:
    return int(WALL_START_MS + universe.time.now * 1000.0)
