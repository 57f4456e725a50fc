"""The simulated cluster under test: one process, virtual time, and the same run bit for bit from the same seed.

The invariants of `simulation` are checked while the run goes on, and `on_broken` is called for each one that is broken.
Clients live on hosts of their own, which their world names, so that their links can be broken, too.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import trio

from barnabas.client.security_names import SecurityOptions
from barnabas.cluster.cells import host_name
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.fault_points import DISK_POINTS
from barnabas.cluster.layout import LOCAL_SHAPE
from barnabas.cluster.simulated import DATA, SimulatedCluster, SimulatedNode, Size
from barnabas.fault_proxy.rules import MessageRule, Way
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.simulated import Universe, make_world
from barnabas.runtime.simulated.clocks import SimulatedClock
from barnabas.runtime.simulated.object_store import FaultKind
from barnabas.runtime.simulated.store import DEFAULT_CAPACITY_BYTES, DiskFault
from barnabas.runtime.simulated.universe import WALL_START_MS
from barnabas.runtime.simulated.work import WorkCounter
from barnabas.runtime.tls.channel import TlsChannelSecurity
from barnabas.runtime.tls.options import TlsOptions
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import World
from barnabas.settings.host import HOST
from barnabas.storage.names import METADATA_TOPIC
from loss_budget import Membership, NodeState
from nemeses.kinds import COVERED
from operations import Place
from simulation.armed_faults import ArmedFaults
from simulation.conditions import USUAL, Conditions
from simulation.coverage import Coverage
from simulation.damage import damage_store
from simulation.exact_budget import ExactBudget
from simulation.failures import describe, is_of_disk, place_of
from simulation.findings import Findings
from simulation.invariants.work import Work
from simulation.links import SimLinks
from simulation.logins import LOGIN, LOGINS_PORT, with_logins
from simulation.messages import MessageFaults
from simulation.node_certificates import FILE_SETTINGS, NodeCertificates
from simulation.secure_nodes import secure_settings
from simulation.sights import Sights
from simulation.unprotected_bytes import leader_epochs
from simulation.watch import NodeLog, Watch
from worlds.cluster import AuthorityStep, Damage, LinkFault, ReplicaView, current_fault
from worlds.world_options import ENCRYPTED, FIXED_VOTERS, NO_CERTIFICATES, NO_SHARED_HOSTS, ONE_LOG_DIR

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
"""Host from which this class asks nodes; no fault is on its links."""
CALL_MS = 5_000
ELECTION_LOOK_SECONDS = 0.001
VOTERS = "controller.quorum.voters="


MOST_PPM = 2000.0
"""Maximum error of the rate of a clock."""
MOST_DISK_ERRORS = 1000
SLOW_STORE, OLD_LISTS = "slow", "old lists"
SLOW_STORE_MS = (200.0, 2_000.0)
"""Least time of a request to a slow object store, and mean of what comes on top."""
OLD_LISTS_MS = 20_000.0


@dataclass(frozen=True, slots=True)
class SimSettings:
    """Settings of a simulated cluster."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of every node, by Kafka's names."""
    shape: Path = LOCAL_SHAPE
    conditions: Conditions = USUAL
    with_messages: bool = True
    """Single messages can be held and dropped. It costs time in every connection."""

    def of_node(self, name: str) -> Mapping[str, str]:
        """Settings of the node with this name."""
        secure = secure_settings(name) if self.conditions.secure else {}
        host = host_of(name, self.conditions.cells)
        own = {} if host is None else {HOST: host}
        return {**(with_logins(secure, name) if self.conditions.logins else secure), **own, **self.settings}


class SimCluster:
    """`ClusterUnderTest` and `SimulatedWorld` in a universe."""

    name = "sim"
    more_points = DISK_POINTS
    """Fault points of the disks, for `kill-at` and `pause-at`; by role."""

    def __init__(self, universe: Universe, nursery: trio.Nursery, settings: SimSettings) -> None:
        conditions = settings.conditions
        self.universe = universe
        universe.fabric.habits.encrypted = conditions.secure
        self.findings = Findings(lambda: universe.time.now)
        self.coverage = Coverage(universe, COVERED)
        self.cluster = SimulatedCluster(
            universe,
            nursery,
            settings.of_node,
            settings.shape,
            conditions.features,
            _size(conditions),
        )
        self.hosts: dict[str, list[str]] = {}
        """Brokers by the host that they share; empty if each has a host of its own."""
        for name in self.brokers:
            if (host := host_of(name, conditions.cells)) is not None:
                self.hosts.setdefault(host, []).append(name)
        self._has_living_voters = conditions.voters is not None
        self._has_log_dirs = conditions.log_dirs > 1
        self.settings = settings.settings
        """Settings of every node, by Kafka's names."""
        self.login: SecurityOptions = LOGIN if conditions.logins else {}
        """Settings of the clients of an administrator, by which they log in."""
        self.watch = Watch(universe, self.findings, self.cluster, self.coverage)
        self.budget = ExactBudget(self.cluster, self.watch)
        self.certificates = NodeCertificates(universe, [*self.cluster.nodes, ONLOOKER]) if conditions.secure else None
        """None: nodes have none."""
        self.links = SimLinks(universe, list(self.cluster.nodes))
        self.messages = MessageFaults(universe, self.links.name_of) if settings.with_messages else None
        self.began = 0.0
        self.on_broken: Callable[[str], None] | None = None
        """Called with each broken promise, in one line, when it is found."""
        self.trace: list[str] = []
        """The last events before the first promise was broken."""
        self._reported = 0
        self._worlds: dict[str, World] = {}
        self._onlooker: World
        self._offsets_ms: dict[str, int] = {}
        self._touched_disks: dict[str, None] = {}
        """Nodes whose disk has failed in their present life."""
        self._broken_disks: dict[str, DiskFault] = {}
        self._armed = ArmedFaults(universe)
        self._sights = Sights(self.cluster, self.watch, self._state)
        self._clock_chance = universe.stream("clocks")
        self._set_speed(conditions)
        self.watch.partitions.first_sequence = conditions.first_sequence
        if conditions.tuned:
            self.cluster.dress = lambda _name, world: replace(world, tuned=conditions.tuned.get)
        if conditions.count_work:
            universe.count_work = WorkCounter(Work(self.findings).took)
            self.findings.count("runs whose steps are counted")
        self.cluster.on_failure = self._node_failed
        self.findings.on_broken = self._report_broken
        universe.on_strike = self._armed_fault_strikes

    def _set_speed(self, conditions: Conditions) -> None:
        chance = self.universe.stream("world")
        latency_ms, blocking_ms = chance.choice(LATENCIES_MS), chance.choice(BLOCKING_MS)
        self.universe.wires.latency_ms = conditions.latency_ms or latency_ms
        self.blocking_ms = conditions.disk_ms or blocking_ms
        """(least, mean on top) of a disk that is not slow."""
        for name in self.cluster.nodes:
            self.universe.host(name).blocking_ms = self.blocking_ms

    @property
    def cannot(self) -> Mapping[str, str]:
        by_security = {"rotate": NO_CERTIFICATES} if self.certificates is None else {"message": ENCRYPTED}
        fixed = {} if self._has_living_voters else {"voters": FIXED_VOTERS}
        alone = {} if self.hosts else {"host": NO_SHARED_HOSTS}
        return {**by_security, **fixed, **alone, **({} if self._has_log_dirs else {"move-log": ONE_LOG_DIR})}

    @property
    def brokers(self) -> Sequence[str]:
        return [node.node.name for node in self.cluster.brokers]

    @property
    def controllers(self) -> Sequence[str]:
        return [node.node.name for node in self.cluster.controllers]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.cluster.bootstrap)

    @property
    def login_servers(self) -> str:
        """Bootstrap servers for clients with `login`."""
        if not self.login:
            return self.bootstrap_servers
        return ",".join(f"{host}:{LOGINS_PORT}" for host, _ in self.cluster.bootstrap)

    @property
    def controller_addresses(self) -> Mapping[str, list[tuple[str, int]]]:
        return {"controller": [(node.node.name, node.node.port) for node in self.cluster.controllers]}

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
        return wall_ms_of(self.universe)

    # ---- nodes

    async def kill(self, *names: str) -> None:
        for node in self._known(*names):
            self._strikes("kill", node)
            self.cluster.kill(node.node.name)
        await self._ended(*names)

    async def start(self, *names: str) -> None:
        for node in self._known(*names):
            name = node.node.name
            await node.ended.wait()
            self._touched_disks.pop(name, None)
            if self.certificates is not None:
                self.certificates.install(name)
            self.cluster.start(name)

    async def stop(self, name: str) -> None:
        [node] = self._known(name)
        self._strikes("stop", node)
        with trio.move_on_after(STOP_SECONDS):
            await self.cluster.stop(name)
        if node.running:
            self.cluster.kill(name)
        await self._ended(name)

    async def pause(self, name: str) -> None:
        """Stalls all links of the node, as if its process was frozen: nothing passes and nothing is lost."""
        [node] = self._known(name)
        self._strikes("pause", node)
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
        answer = await self._call(controller, UnregisterBrokerRequest(broker_id=node.node.id))
        if answer.error_code:
            refusal = ErrorCode(answer.error_code).name
            raise ClusterError(f"{name} cannot be unregistered: {controller} answers {refusal}")

    async def ask(self, name: str, request: Message) -> Any:
        [node] = self._known(name)
        self._strikes(current_fault.get(), node)
        return await self._call(name, request)

    async def _call(self, name: str, request: Message) -> Any:
        if not self.universe.is_alive(ONLOOKER):
            self._onlooker = make_world(ONLOOKER, self.universe)
        async with trio.open_nursery() as nursery:
            port = self.cluster.nodes[name].node.port
            security = self._onlooker_security()
            channel = Channel(self._onlooker, nursery, name, port, client_id=ONLOOKER, security=security)
            answer, failure = None, ""
            try:
                answer = await channel.call(request, timeout_ms=CALL_MS)
            except ChannelError as error:
                failure = str(error)
            nursery.cancel_scope.cancel()
        if failure:
            raise ClusterError(f"{name} does not answer: {failure}")
        return answer

    def _onlooker_security(self) -> ChannelSecurity | None:
        """Controllers of a secure cluster answer nodes alone."""
        if self.certificates is None:
            return None
        return TlsChannelSecurity(TlsHolder(TlsOptions.of(FILE_SETTINGS), self._onlooker, client=True))

    async def states(self) -> Mapping[str, NodeState]:
        return {name: self._state(node) for name, node in self.cluster.nodes.items()}

    # ---- links

    async def cut(self, source: str, target: str) -> None:
        self._strike_link("partition: one", source, target)
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

    async def stall(self, source: str, target: str, *, on: bool) -> None:
        if on:
            self._strike_link("stall", source, target)
        self.links.stall(source, target, on=on)

    def client_hosts(self) -> Sequence[str]:
        return self.links.clients

    async def dribble(self, name: str, *, on: bool) -> None:
        dribblers = self.universe.fabric.habits.dribblers
        dribblers.pop(name, None)
        if on:
            self._strike_link("dribble", name)
            dribblers[name] = None

    async def hide_names(self, names: Sequence[str], *, on: bool) -> None:
        unresolved = self.universe.fabric.unresolved
        for name in names:
            unresolved.pop(name, None)
            if on:
                self._strike_link("names-gone", name)
                unresolved[name] = None

    async def add_rule(self, rule: MessageRule) -> int:
        self._strike_link("message", *dict.fromkeys(end for end in (rule.source, rule.target) if end is not None))
        return self._messages().add(rule)

    async def clear_rule(self, number: int) -> int:
        return self._messages().clear(number)

    async def asked(self) -> Mapping[Way, int]:
        return self._messages().asked()

    def _messages(self) -> MessageFaults:
        if self.messages is None:
            raise ClusterError("this simulated cluster was made without faults of messages")
        return self.messages

    async def heal(self) -> None:
        self.links.heal()
        if self.messages is not None:
            self.messages.heal()
        self.universe.fabric.habits.dribblers.clear()
        self.universe.fabric.unresolved.clear()
        for name in self.cluster.nodes:
            self.universe.slow_disk(name, self.blocking_ms)
        for name in list(self._broken_disks):
            await self.repair_disk(name)
        await self.heal_object_store()
        if self.certificates is not None:
            self.certificates.heal()

    # ---- clocks and disks

    async def set_clock(self, name: str, offset_ms: int) -> None:
        [node] = self._known(name)
        if offset_ms:
            self._strikes("clock", node)
            # A crystal that runs at another rate stays as it is when the time of day is set right.
            self.universe.host(name).monotonic.set_rate(self._clock_chance.uniform(-MOST_PPM, MOST_PPM))
        self.universe.host(name).wall_clock.jump(offset_ms - self._offsets_ms.get(name, 0))
        self._offsets_ms[name] = offset_ms

    async def power_cut(self, name: str) -> None:
        [node] = self._known(name)
        self._strikes("power", node)
        self._lost_something(node)
        self.cluster.power_cut(name)
        await self._ended(name)

    async def torn_power_cut(self, name: str) -> None:
        self._known(name)
        disk = self.universe.disk(name)
        disk.garbage, disk.unguarded = True, leader_epochs
        try:
            await self.power_cut(name)
        finally:
            disk.garbage = False

    async def break_disk(self, name: str, operation: str, probability: float) -> None:
        [node] = self._known(name)
        self._strikes("disk-error", node)
        fault = DiskFault(frozenset({operation}), f"/{name}/", errno.EIO, probability, remaining=MOST_DISK_ERRORS)
        self._touched_disks[name] = None
        self._broken_disks[name] = fault
        self.universe.disk(name).faults.append(fault)

    async def repair_disk(self, name: str) -> int:
        fault = self._broken_disks.pop(name, None)
        if fault is None:
            return 0
        self.universe.disk(name).faults.remove(fault)
        return MOST_DISK_ERRORS - (fault.remaining or 0)

    async def slow_disk(self, name: str, milliseconds: tuple[float, float] | None) -> None:
        [node] = self._known(name)
        if milliseconds is not None:
            self._strikes("slow-disk", node)
        self.universe.slow_disk(name, milliseconds or self.blocking_ms)

    @property
    def store_faults(self) -> Sequence[str]:
        return (*(kind.value for kind in FaultKind), SLOW_STORE, OLD_LISTS)

    async def break_object_store(self, how: str, operation: str, probability: float) -> None:
        for bucket in self.universe.buckets.values():
            for node in self.cluster.brokers:
                self._strikes("store", node)
            if how == SLOW_STORE:
                bucket.latency_ms = SLOW_STORE_MS
            elif how == OLD_LISTS:
                bucket.list_lag_ms = OLD_LISTS_MS
            else:
                operations = () if operation == "all" else (operation,)
                bucket.fail(FaultKind(how), *operations, probability=probability)

    async def heal_object_store(self) -> None:
        for bucket in self.universe.buckets.values():
            bucket.heal()

    async def fill_disk(self, name: str, *, full: bool) -> None:
        [node] = self._known(name)
        store = self.universe.disk(name)
        if full:
            self._strikes("disk-full", node)
            self._touched_disks[name] = None
            store.capacity_bytes = store.used_bytes + FREE_WHEN_FULL_BYTES
        else:
            store.capacity_bytes = DEFAULT_CAPACITY_BYTES

    async def damage(self, name: str, damage: Damage) -> Sequence[str]:
        node = self._at_rest(name)
        chance = self.universe.stream(f"damage/{name}/{self.now_ns()}")
        damaged = damage_store(self.universe.disk(name), f"/{name}/{DATA}", damage, chance)
        if damaged:
            self._touched_disks[name] = None
            self._strikes(damage.kind, node)
            # A broker's copy of the metadata has no vote, and is fetched again from wherever it ends.
            whole_disk = any(METADATA_TOPIC in line for line in damaged)
            self._lost_something(node, whole_disk=whole_disk, flushed_too=True)
        return damaged

    async def wipe(self, name: str) -> None:
        node = self._at_rest(name)
        self._strikes("wipe", node)
        self.universe.disk(name).wipe()
        self._lost_something(node, whole_disk=True)

    async def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        self._known(name)
        self._armed.kill_at(name, point, power_cut=power_cut)

    async def pause_at(self, name: str, point: str) -> None:
        self._known(name)
        self._armed.pause_at(name, point)

    async def kill_at_write(self, name: str, count: int, *, power_cut: bool = False) -> None:
        if not self.universe.is_alive(name):
            raise ClusterError(f"{name} does not run")
        self._armed.kill_at_write(name, count, power_cut=power_cut)

    async def disarm(self, name: str) -> bool:
        self._known(name)
        return self._armed.disarm(name)

    # ---- certificates

    async def renew_certificate(self, name: str) -> None:
        [node] = self._known(name)
        self._strikes("rotate: certificate", node)
        self._certificates().renew(name)

    async def spoil_certificate(self, name: str) -> None:
        [node] = self._known(name)
        if not node.is_up:
            raise ClusterError(f"{name} is not up: it could not start with a broken certificate")
        self._strikes("rotate: broken file", node)
        self._certificates().spoil(name)

    async def change_authority(self, step: AuthorityStep) -> None:
        for node in self.cluster.nodes.values():
            self._strikes("rotate: authority", node)
        self._certificates().change_authority(step)

    def _certificates(self) -> NodeCertificates:
        if self.certificates is None:
            raise ClusterError(NO_CERTIFICATES)
        return self.certificates

    # ---- voters

    def voter_address(self, name: str) -> tuple[str, int]:
        [node] = self._known(name)
        return name, node.node.port

    def log_dirs(self, name: str) -> Sequence[str]:
        [node] = self._known(name)
        return list(node.settings.log_dirs)

    async def lost_voters(self) -> Sequence[ReplicaKey]:
        return self.watch.lost_voters()

    async def may_lose_a_voter(self) -> bool:
        return self.watch.has_voters_to_lose()

    async def next_active_controller(self, name: str, timeout_seconds: float) -> str | None:
        leaders = self.watch.quorum.leaders
        before = max(leaders, default=0)
        with trio.move_on_after(timeout_seconds):
            while max(leaders, default=0) == before or await self.active_controller() in (None, name):
                await trio.sleep(ELECTION_LOOK_SECONDS)
            return await self.active_controller()
        return None

    # ---- looking

    async def leader_of(self, place: Place) -> str | None:
        return self._sights.leader(place.topic, place.partition)

    async def active_controller(self) -> str | None:
        return self._sights.active_controller()

    async def coordinator_of(self, kind: Literal["group", "transaction", "share"], id_: str) -> str | None:
        return self._sights.coordinator(kind, id_)

    async def views(self) -> Sequence[ReplicaView]:
        return self._sights.views()

    async def memberships(self) -> Sequence[Membership]:
        return self._sights.memberships()

    async def wait_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        await self.cluster.wait_ready(timeout_seconds)

    def nodes_in_rare_states(self) -> Sequence[str]:
        nodes = self.cluster.nodes.values()
        return [node.node.name for node in nodes if self._state(node) == "running" and self.coverage.is_loading(node)]

    def log_files(self) -> Mapping[str, Path]:
        return {}

    # ---- inside

    def _known(self, *names: str) -> list[SimulatedNode]:
        for name in names:
            if name not in self.cluster.nodes:
                raise ClusterError(f"there is no node {name}; there are {', '.join(self.cluster.nodes)}")
        return [self.cluster.nodes[name] for name in names]

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

    def _strikes(self, fault: str, node: SimulatedNode) -> None:
        """A fault begins to act on the node: that of the nemesis, or else `fault`."""
        self.coverage.strike(current_fault.get() or fault, node)

    def _strike_link(self, fault: str, *ends: str) -> None:
        for end in ends:
            if end in self.cluster.nodes:
                self._strikes(fault, self.cluster.nodes[end])

    def _armed_fault_strikes(self, name: str, power_cut: bool) -> bool | None:
        """An armed fault strikes; returns whether it cuts the power, or None if the node lives on."""
        node = self.cluster.nodes[name]
        armed = self._armed.struck(name)
        self.coverage.strike(armed.fault, node, armed.point)
        if armed.freezes:
            self.links.pause(name)
            return None
        if power_cut:
            self._lost_something(node)
        return power_cut

    def _lost_something(self, node: SimulatedNode, *, whole_disk: bool = False, flushed_too: bool = False) -> None:
        if node.node.is_broker:
            self.watch.broker_lost_something(node.node.id, whole_disk=whole_disk, flushed_too=flushed_too)
        elif whole_disk:
            self.watch.quorum.disk_lost(node.node.id)

    def _node_failed(self, name: str, error: BaseException) -> None:
        if name in self._touched_disks and is_of_disk(error):
            self.findings.count("nodes that gave up their disk")
            return
        self.findings.report(f"{name} ended by itself: {describe(error)}")

    def judge_log(self, node_log: NodeLog) -> None:
        """Reports each error that a node logged together with an exception, unless a failed disk explains it."""
        for node, message, error in node_log.errors:
            if node in self.cluster.nodes and (error is None or not is_of_disk(error)):
                self.findings.report(f"logged as an error: {message} {error!r}{place_of(error)}")

    def _report_broken(self) -> None:
        if self.on_broken is not None and len(self.findings.broken) > self._reported:
            self._reported = len(self.findings.broken)
            self.trace = self.trace or list(self.universe.trace_tail)
            self.on_broken(self.findings.broken[-1])


def _size(conditions: Conditions) -> Size | None:
    if conditions.size is None and conditions.voters is None:
        return None
    brokers, controllers = conditions.size or (3, 3)
    return Size(brokers, controllers, conditions.voters)


def host_of(name: str, cells: int) -> str | None:
    """The host of a node; None if it shares it with nobody."""
    role, _, number = name.partition("-")
    return host_name(int(number), cells) if cells > 1 and role == "broker" else None


def wall_ms_of(universe: Universe) -> int:
    return int(WALL_START_MS + universe.time.now * 1000.0)
