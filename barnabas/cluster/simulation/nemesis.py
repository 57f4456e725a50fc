"""The nemesis: breaks things for a while, within what the model allows, and counts what took hold.

The model (RE-10, RE-11, KIP-966): min.insync.replicas = m keeps acknowledged records through m - 1 losses at a
time, for so many members of ISR and ELR have each of them. To the controller a broker that did not stop in good
order may have lost something, whether it did or not. So, in every partition: one broker at most may lose its
power or disk until it has registered anew, only where m is 2 or more, and while another member lives on; and as
long as it counts as a member, the last other one that lives may not be killed. Everything else may happen at any
time; it costs availability only.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.cluster.fault_points import FAULT_POINTS
from barnabas.cluster.simulated import SimulatedCluster, SimulatedNode
from barnabas.cluster.simulation.findings import Findings
from barnabas.cluster.simulation.swarm import SESSION_TIMEOUT_MS, Plan
from barnabas.cluster.simulation.watch import Watch
from kraft.metadata.image import PartitionImage
from runtime.simulated import Universe
from runtime.simulated.chance import Stream
from runtime.simulated.links import Link
from runtime.simulated.store import DEFAULT_CAPACITY_BYTES, DiskFault

ARMED_SECONDS = 6.0
"""How long a node may take to come to the point where it is to die."""


@dataclass(slots=True, eq=False)
class WireFault:
    """Links that are cut or stalled."""

    links: list[Link]
    stalled: bool = False


@dataclass(slots=True)
class Nemesis:
    """Breaks one cluster."""

    universe: Universe
    cluster: SimulatedCluster
    watch: Watch
    findings: Findings
    plan: Plan
    clients: tuple[str, ...]
    _chance: Stream = field(init=False)
    _wire_faults: list[WireFault] = field(default_factory=list)
    _slowed: list[Link] = field(default_factory=list)
    _busy: dict[str, None] = field(default_factory=dict)
    """Nodes that a fault is holding."""
    touched_disks: dict[str, None] = field(default_factory=dict)
    """Nodes whose disk has failed: what breaks there in this life is explained."""
    took_hold: int = 0

    def __post_init__(self) -> None:
        self._chance = self.universe.stream("nemesis")
        self.universe.on_strike = self._strike

    async def run(self) -> None:
        """Break things until cancelled; then call `undo_all`."""
        chance, plan = self._chance, self.plan
        kinds, weights = list(plan.fault_weights), list(plan.fault_weights.values())
        limit = trio.CapacityLimiter(plan.faults_at_once)
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(chance.expovariate(1.0 / plan.fault_pause_seconds))
                kind = chance.choices(kinds, weights)[0]
                if limit.available_tokens:
                    nursery.start_soon(self._one, kind, limit)

    async def _one(self, kind: str, limit: trio.CapacityLimiter) -> None:
        async with limit:
            self.universe.trace(f"nemesis: {kind}")
            held = await _FAULTS[kind](self)
            self.universe.trace(f"nemesis: {kind} is over{'' if held else ', to no effect'}")
        if held:
            self.took_hold += 1
            self.findings.count(f"fault: {kind}")

    async def undo_all(self, but: Sequence[str] = ()) -> None:
        """Heal wires and disks, start everything that is down, and what has seen its disk fail anew, but for the nodes
        that stay as they are."""
        for fault in list(self._wire_faults):
            self._mend(fault)
        for link in self._slowed:
            link.latency_min_ms, link.latency_mean_ms = self.universe.wires.latency_ms
        for name in self.cluster.nodes:
            self.universe.disarm(name)
            store = self.universe.disk(name)
            store.faults.clear()
            store.capacity_bytes = DEFAULT_CAPACITY_BYTES
        self._busy.clear()
        async with trio.open_nursery() as nursery:
            for name, node in self.cluster.nodes.items():
                if name not in but:
                    nursery.start_soon(self._bring_back, node)

    async def leave_broken(self, rest: Sequence[str]) -> None:
        """Mend everything but the rest: who is dead there stays dead, and the others die, or are cut off, frozen, deaf
        or mute, until `undo_all`."""
        await self.undo_all(but=rest)
        everybody = self._everybody()
        for name in rest:
            node = self.cluster.nodes[name]
            fate = self._chance.choice(("dead", "cut off", "frozen", "deaf", "mute"))
            if not node.running or (fate == "dead" and self._kill(node)):
                self.universe.trace(f"{name} stays dead")
                continue
            self.universe.trace(f"{name} stays {fate}")
            both, outgoing = self._between([name], everybody), self._between([name], everybody, both_ways=False)
            links = {"deaf": [link for link in both if link not in outgoing], "mute": outgoing}.get(fate, both)
            self._wire_faults.append(WireFault(links, stalled=fate == "frozen"))
            self._apply(links)

    async def _bring_back(self, node: SimulatedNode) -> None:
        name = node.node.name
        if name in self.touched_disks and not node.node.is_broker:
            self.cluster.power_cut(name)
        elif name in self.touched_disks:
            await self._kill_when_allowed(node)
        elif node.running and self.universe.is_alive(name) and not node.stop.is_set():
            return
        await node.ended.wait()
        self.cluster.start(name)

    # ---- choosing

    def _pick(self, nodes: Iterable[SimulatedNode]) -> SimulatedNode | None:
        free = [node for node in nodes if node.running and node.node.name not in self._busy]
        return self._chance.choice(free) if free else None

    def _any_node(self) -> SimulatedNode | None:
        """Often a leader: that is where things happen."""
        if self._chance.random() < 0.3:
            leader = self._pick(node for node in self.cluster.controllers if node.node.id == self._active_controller())
            if leader is not None:
                return leader
        brokers_only = self._chance.random() < 0.6
        return self._pick(self.cluster.brokers if brokers_only else self.cluster.nodes.values())

    def _active_controller(self) -> int:
        leaders = self.watch.quorum.leaders
        return leaders[max(leaders)] if leaders else -1

    def _partitions(self) -> Iterator[tuple[int, PartitionImage]]:
        """(min.insync.replicas, state) of each partition."""
        configs = {plan.name: plan.configs for plan in self.plan.topics}
        for name, topic in self.watch.quorum.image.topics.by_name.items():
            # Internal topics have what the brokers say.
            of_topic = configs.get(name, self.plan.settings)
            for partition in topic.partitions.values():
                yield min(int(of_topic["min.insync.replicas"]), len(partition.replicas)), partition

    def may_die(self, node: SimulatedNode, *, losing: bool = False) -> bool:
        """Whether the model allows this node to die now, and to lose what it has not synced (or everything)."""
        if not node.node.is_broker:
            return True
        lossy = self.watch.partitions.lossy
        for min_isr, partition in self._partitions():
            if node.node.id not in partition.replicas:
                continue
            members = (*partition.isr, *partition.elr)
            others_lost = any(
                member in lossy and member != node.node.id for member in (*members, *partition.last_known_elr)
            )
            if losing and (min_isr < 2 or others_lost):
                return False
            if (losing or others_lost) and not any(
                member != node.node.id and member not in lossy and self._lives_on(member) for member in members
            ):
                return False
        return True

    def _lives_on(self, broker_id: int) -> bool:
        """It runs, no fault is about to end it, and the metadata knows it as it is: one that was killed and has not
        registered since is going to be taken for one that lost something."""
        node = self.cluster.node_of(broker_id)
        registered = self.watch.quorum.image.cluster.brokers.get(broker_id)
        return (
            node.broker is not None
            and node.node.name not in self._busy
            and registered is not None
            and registered.epoch == node.broker.lifecycle.broker_epoch
        )

    def _length(self) -> float:
        return 0.2 + self._chance.expovariate(1.0 / self.plan.fault_length_seconds)

    async def _hold(self, at_least: float = 0.0) -> None:
        await trio.sleep(max(self._length(), at_least))

    # ---- death

    async def _die_and_come_back(self, node: SimulatedNode) -> None:
        """Wait until the dead node is gone, then for a while, then start it again."""
        name = node.node.name
        self._busy[name] = None
        self.touched_disks.pop(name, None)
        await node.ended.wait()
        await self._hold()
        self._busy.pop(name, None)
        if not node.running:
            self.cluster.start(name)

    def _kill(self, node: SimulatedNode) -> bool:
        """Kill it if the model allows that now."""
        if not self.may_die(node):
            return False
        self.cluster.kill(node.node.name)
        return True

    def cut_power(self, node: SimulatedNode) -> None:
        """And tell the promises of it, first: they must not look at what is left."""
        self.cluster.power_cut(node.node.name)
        if node.node.is_broker:
            self.watch.broker_lost_something(node.node.id, whole_disk=False)

    async def kill(self) -> bool:
        node = self._any_node()
        if node is None or not self._kill(node):
            return False
        await self._die_and_come_back(node)
        return True

    async def power_cut(self) -> bool:
        node = self._any_node()
        if node is None or not self.may_die(node, losing=True):
            return False
        self.cut_power(node)
        await self._die_and_come_back(node)
        return True

    async def lose_disk(self) -> bool:
        node = self._pick(self.cluster.brokers)
        if node is None or not self.may_die(node, losing=True):
            return False
        self.cluster.kill(node.node.name)
        self.universe.disk(node.node.name).wipe()
        self.watch.broker_lost_something(node.node.id, whole_disk=True)
        await self._die_and_come_back(node)
        return True

    async def die_at_point(self, *, power_cut: bool = False) -> bool:
        node = self._any_node()
        if node is None:
            return False
        point = self._chance.choice(FAULT_POINTS[node.node.role])
        occurrence = self._chance.randint(1, 5)

        def arm() -> None:
            self.universe.kill_at(node.node.name, point, occurrence=occurrence, power_cut=power_cut)

        return await self._die_when(node, arm, power_cut=power_cut)

    async def die_at_disk_operation(self, *, power_cut: bool = False) -> bool:
        node = self._any_node()
        if node is None:
            return False
        after = self._chance.randint(1, 40)

        def arm() -> None:
            self.universe.kill_at_change(node.node.name, after, power_cut=power_cut)

        return await self._die_when(node, arm, power_cut=power_cut)

    async def _die_when(self, node: SimulatedNode, arm: Callable[[], None], *, power_cut: bool) -> bool:
        """Arm a death and wait for it."""
        name = node.node.name
        self._busy[name] = None
        arm()
        with trio.move_on_after(ARMED_SECONDS):
            await node.ended.wait()
        self.universe.disarm(name)
        if node.running:
            self._busy.pop(name, None)
            return False
        died = node.failure is None and (not power_cut or self.universe.is_dark(name))
        await self._die_and_come_back(node)
        return died

    def _strike(self, name: str, power_cut: bool) -> bool | None:
        """An armed death strikes: may it, as things are now? The promises hear of what is lost before it is."""
        node = self.cluster.nodes[name]
        if power_cut and self.may_die(node, losing=True):
            if node.node.is_broker:
                self.watch.broker_lost_something(node.node.id, whole_disk=False)
            return True
        return False if self.may_die(node) else None

    async def stop_and_start(self) -> bool:
        node = self._any_node()
        if node is None:
            return False
        self._busy[node.node.name] = None
        node.stop.set()
        with trio.move_on_after(40):
            await node.ended.wait()
        clean = not node.running
        if not clean:
            await self._kill_when_allowed(node)
        await self._die_and_come_back(node)
        return clean

    async def _kill_when_allowed(self, node: SimulatedNode) -> None:
        while node.running and not self._kill(node):
            await trio.sleep(0.5)

    async def restart_all(self) -> bool:
        if self.watch.partitions.lossy:
            return False
        nodes = [node for node in self.cluster.nodes.values() if node.running and node.node.name not in self._busy]
        for node in nodes:
            self.cluster.kill(node.node.name)
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(self._die_and_come_back, node)
        return len(nodes) > 3

    # ---- wires

    def _between(self, some: Iterable[str], others: Iterable[str], *, both_ways: bool = True) -> list[Link]:
        wires = self.universe.wires
        pairs = [(a, b) for a in some for b in others if a != b]
        if both_ways:
            pairs += [(b, a) for a, b in pairs]
        return [wires.link(a, b) for a, b in dict.fromkeys(pairs)]

    def _everybody(self) -> list[str]:
        return [*self.cluster.nodes, *self.clients]

    async def _break(self, fault: WireFault, *, at_least: float = 0.0) -> bool:
        """Hold the links until it is over; True if anything was kept from passing."""
        arrived = [link.refused for link in fault.links]
        self._wire_faults.append(fault)
        self._apply(fault.links)
        try:
            await self._hold(at_least)
        finally:
            self._mend(fault)
        return any(link.refused > before for link, before in zip(fault.links, arrived, strict=True))

    def _mend(self, fault: WireFault) -> None:
        if fault in self._wire_faults:
            self._wire_faults.remove(fault)
            self._apply(fault.links)

    def _apply(self, links: Iterable[Link]) -> None:
        """A link is as all faults that are on it want it."""
        for link in links:
            on_it = [fault for fault in self._wire_faults if link in fault.links]
            link.set(cut=any(not fault.stalled for fault in on_it), stalled=any(fault.stalled for fault in on_it))

    async def pause(self) -> bool:
        """As a process that is frozen looks from outside: nothing is lost, nothing moves, its time goes on."""
        node = self._any_node()
        if node is None:
            return False
        name = node.node.name
        return await self._break(WireFault(self._between([name], self._everybody()), stalled=True))

    async def isolate(self) -> bool:
        node = self._any_node()
        if node is None:
            return False
        others = self._everybody() if self._chance.random() < 0.5 else list(self.cluster.nodes)
        return await self._break(WireFault(self._between([node.node.name], others)))

    async def isolate_client(self) -> bool:
        """Whoever it was to the cluster, it may not be that any more when it comes back."""
        client = self._chance.choice(self.clients)
        fault = WireFault(self._between([client], self.cluster.nodes), stalled=self._chance.random() < 0.5)
        longer_than_a_session = SESSION_TIMEOUT_MS / 1000 + 6.0
        return await self._break(fault, at_least=self._chance.choice((0.0, longer_than_a_session)))

    async def one_way(self) -> bool:
        node = self._any_node()
        if node is None:
            return False
        name, others = [node.node.name], list(self.cluster.nodes)
        some, rest = (name, others) if self._chance.random() < 0.5 else (others, name)
        return await self._break(WireFault(self._between(some, rest, both_ways=False)))

    def _halves(self) -> tuple[list[str], list[str]]:
        names = list(self.cluster.nodes)
        self._chance.shuffle(names)
        size = self._chance.randint(1, len(names) - 1)
        return names[:size], names[size:]

    async def halves(self) -> bool:
        left, right = self._halves()
        return await self._break(WireFault(self._between(left, right)))

    async def bridge(self) -> bool:
        left, right = self._halves()
        middle = self._chance.choice(list(self.cluster.nodes))
        left, right = [n for n in left if n != middle], [n for n in right if n != middle]
        return await self._break(WireFault(self._between(left, right)))

    async def slow_links(self) -> bool:
        names = self._everybody()
        links = [self.universe.wires.link(a, b) for a in names for b in names if a != b and self._chance.random() < 0.3]
        least_ms = self._chance.choice((20.0, 100.0, 400.0))
        before = self.universe.wires.arrivals
        self._slowed += links
        for link in links:
            link.latency_min_ms, link.latency_mean_ms = least_ms, least_ms
        await self._hold()
        for link in links:
            link.latency_min_ms, link.latency_mean_ms = self.universe.wires.latency_ms
        return self.universe.wires.arrivals > before

    # ---- clocks and disks

    async def clock_jump(self) -> bool:
        node = self._any_node()
        if node is None:
            return False
        host = self.universe.host(node.node.name)
        host.wall_clock.jump(self._chance.choice((-1, 1)) * 10 ** self._chance.uniform(1.0, 6.5))
        host.monotonic.set_rate(self._chance.uniform(-2000.0, 2000.0))
        await self._hold()
        return True

    async def _disk_trouble(
        self, node: SimulatedNode, has_struck: Callable[[], bool], mend: Callable[[], None]
    ) -> bool:
        """Let a disk be in trouble for a while, then mend it and start its node again."""
        name = node.node.name
        self._busy[name] = None
        self.touched_disks[name] = None
        with trio.move_on_after(self._length()):
            await node.ended.wait()
        struck = has_struck()
        mend()
        if not node.node.is_broker:
            # Pages that a failed sync has lost still show in the cache. Who trusted it would trust the disk.
            self.cluster.power_cut(name)
        await self._kill_when_allowed(node)
        await self._die_and_come_back(node)
        return struck

    async def disk_error(self) -> bool:
        node = self._any_node()
        if node is None or not self.may_die(node):
            return False
        store = self.universe.disk(node.node.name)
        operation = self._chance.choice(("read", "write", "sync"))
        fault = DiskFault(
            frozenset({operation}), f"/{node.node.name}/", errno.EIO, self._chance.choice((1.0, 0.1)), remaining=1000
        )
        store.faults.append(fault)
        return await self._disk_trouble(node, lambda: fault.remaining != 1000, lambda: _remove(store.faults, fault))

    async def disk_full(self) -> bool:
        node = self._any_node()
        if node is None or not self.may_die(node):
            return False
        store = self.universe.disk(node.node.name)
        store.capacity_bytes = store.used_bytes + self._chance.choice((0, 100, 2000))
        refused = store.refused

        def mend() -> None:
            store.capacity_bytes = DEFAULT_CAPACITY_BYTES

        return await self._disk_trouble(node, lambda: store.refused > refused, mend)


def _remove(items: list[Any], item: Any) -> None:
    if item in items:
        items.remove(item)


_FAULTS: dict[str, Callable[[Nemesis], Any]] = {
    "kill": Nemesis.kill,
    "power cut": Nemesis.power_cut,
    "kill at a point": Nemesis.die_at_point,
    "power cut at a point": lambda nemesis: nemesis.die_at_point(power_cut=True),
    "kill at a disk operation": Nemesis.die_at_disk_operation,
    "power cut at a disk operation": lambda nemesis: nemesis.die_at_disk_operation(power_cut=True),
    "stop and start": Nemesis.stop_and_start,
    "restart all": Nemesis.restart_all,
    "pause": Nemesis.pause,
    "isolate": Nemesis.isolate,
    "isolate a client": Nemesis.isolate_client,
    "one way": Nemesis.one_way,
    "halves": Nemesis.halves,
    "bridge": Nemesis.bridge,
    "slow links": Nemesis.slow_links,
    "clock jump": Nemesis.clock_jump,
    "disk error": Nemesis.disk_error,
    "disk full": Nemesis.disk_full,
    "disk lost": Nemesis.lose_disk,
}
