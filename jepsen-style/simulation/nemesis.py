"""The nemesis: breaks things for a while, within what the model of losses allows, and counts what took hold."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.cluster.fault_points import FAULT_POINTS
from barnabas.cluster.simulated import SimulatedCluster, SimulatedNode
from broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from runtime.simulated import Universe, make_world
from runtime.simulated.chance import Stream
from runtime.simulated.store import DEFAULT_CAPACITY_BYTES, DiskFault
from runtime.world import World
from simulation.bad_links import BadLinks
from simulation.coverage import Coverage
from simulation.cut_links import CutLinks, WireFault
from simulation.cut_off import HOST, CutOffClient
from simulation.exact_budget import ExactBudget
from simulation.findings import Findings
from simulation.swarm import CUT_OFF_FROM_NODES, SESSION_TIMEOUT_MS, Plan
from simulation.unprotected_bytes import leader_epochs
from simulation.watch import Watch
from simulation.wrong_clocks import WrongClocks

current_fault: ContextVar[str] = ContextVar("current_fault", default="")
"""The kind of fault whose task this is."""
aimed_at: ContextVar[SimulatedNode | None] = ContextVar("aimed_at", default=None)
"""Whom the fault of this task is to strike, if it can."""
AIM_SECONDS = 0.02
AIMED_PAUSE_SECONDS = 3.0
"""Mean time between faults that are aimed."""
AT_THEIR_OWN_MOMENT = frozenset(
    {"kill at a point", "power cut at a point", "kill at a disk operation", "power cut at a disk operation"}
)
ARMED_SECONDS = 6.0
"""How long a node may take to come to the point where it is to die."""


@dataclass(slots=True)
class Nemesis:
    """Breaks one cluster."""

    universe: Universe
    cluster: SimulatedCluster
    watch: Watch
    findings: Findings
    plan: Plan
    clients: tuple[str, ...]
    coverage: Coverage
    _armed: dict[str, str] = field(default_factory=dict)
    """Nodes that are to die at a moment of their own, and of what."""
    _chance: Stream = field(init=False)
    _budget: ExactBudget = field(init=False)
    _cut_links: CutLinks = field(init=False)
    _bad_links: BadLinks = field(init=False)
    _wrong_clocks: WrongClocks = field(init=False)
    _busy: dict[str, None] = field(default_factory=dict)
    """Nodes that a fault is holding."""
    touched_disks: dict[str, None] = field(default_factory=dict)
    """Nodes whose disk has failed: what breaks there in this life is explained."""
    took_hold: int = 0
    _asking: World | None = None
    """Where brokers that are cut off are asked from, once there was one."""

    def __post_init__(self) -> None:
        self._chance = self.universe.stream("nemesis")
        self.universe.on_strike = self._strike
        self._budget = ExactBudget(self.cluster, self.watch, self.plan, self._busy)
        self._cut_links = CutLinks(self.universe)
        self._wrong_clocks = WrongClocks(self.universe, self._chance)
        self._bad_links = BadLinks(self.universe, self._chance, self._everybody, self._hold)

    async def run(self) -> None:
        """Break things until cancelled; then call `undo_all`. A plan may have no faults."""
        chance, plan = self._chance, self.plan
        kinds, weights = list(plan.fault_weights), list(plan.fault_weights.values())
        limit = trio.CapacityLimiter(plan.faults_at_once)
        async with trio.open_nursery() as nursery:
            if plan.cut_off_pause_seconds is not None:
                nursery.start_soon(self._cut_off_now_and_then, plan.cut_off_pause_seconds)
            if not kinds:
                await trio.sleep_forever()
            if plan.aims:
                nursery.start_soon(self._aim, kinds, limit)
            while True:
                await trio.sleep(chance.expovariate(1.0 / plan.fault_pause_seconds))
                kind = chance.choices(kinds, weights)[0]
                if limit.available_tokens:
                    nursery.start_soon(self._one, kind, limit)

    async def _aim(self, kinds: Sequence[str], limit: trio.CapacityLimiter) -> None:
        """Strike nodes in states that are soon over, as soon as one is."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(AIM_SECONDS)
                loading = [node for node in self.cluster.nodes.values() if self.coverage.is_loading(node)]
                if not loading or not limit.available_tokens:
                    continue
                aimed_at.set(self._chance.choice(loading))
                nursery.start_soon(self._one, self._chance.choice(kinds), limit)
                aimed_at.set(None)
                await trio.sleep(self._chance.expovariate(1.0 / AIMED_PAUSE_SECONDS))

    async def _cut_off_now_and_then(self, pause_seconds: float) -> None:
        """Beside the others, and not counted among those at once."""
        limit = trio.CapacityLimiter(1)
        while True:
            await trio.sleep(self._chance.expovariate(1.0 / pause_seconds))
            await self._one(CUT_OFF_FROM_NODES, limit)

    async def _one(self, kind: str, limit: trio.CapacityLimiter) -> None:
        async with limit:
            current_fault.set(kind)
            self.universe.trace(f"nemesis: {kind}")
            held = await _FAULTS[kind](self)
            self.universe.trace(f"nemesis: {kind} is over{'' if held else ', to no effect'}")
        if held:
            self.took_hold += 1
            self.findings.count(f"fault: {kind}")

    async def undo_all(self, but: Sequence[str] = ()) -> None:
        """Heal wires and disks, set clocks right, start everything that is down, and what has seen its disk fail anew,
        but for the nodes that stay as they are."""
        self._cut_links.mend_all()
        self._bad_links.undo()
        self._wrong_clocks.set_right()
        for name in self.cluster.nodes:
            self.universe.disarm(name)
            self.universe.slow_disk(name, self.plan.blocking_ms)
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
            both = self._cut_links.between([name], everybody)
            outgoing = self._cut_links.between([name], everybody, both_ways=False)
            links = {"deaf": [link for link in both if link not in outgoing], "mute": outgoing}.get(fate, both)
            self._cut_links.cut(WireFault(links, stalled=fate == "frozen"))

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
        if not free:
            return None
        aimed = aimed_at.get()
        node = aimed if aimed in free and aimed is not None else self._chance.choice(free)
        if current_fault.get() not in AT_THEIR_OWN_MOMENT:
            self.coverage.strike(current_fault.get(), node)
        return node

    def _any_node(self) -> SimulatedNode | None:
        """Often a leader: that is where things happen."""
        aimed = aimed_at.get()
        if aimed is not None:
            return self._pick([aimed])
        if self._chance.random() < 0.3:
            leader = self._pick(node for node in self.cluster.controllers if node.node.id == self._active_controller())
            if leader is not None:
                return leader
        brokers_only = self._chance.random() < 0.6
        return self._pick(self.cluster.brokers if brokers_only else self.cluster.nodes.values())

    def _active_controller(self) -> int:
        leaders = self.watch.quorum.leaders
        return leaders[max(leaders)] if leaders else -1

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
        if not self._budget.may_die(node):
            return False
        self.cluster.kill(node.node.name)
        return True

    def cut_power(self, node: SimulatedNode) -> None:
        """And tell the promises of it, first: they must not look at what is left."""
        if node.node.is_broker:
            self.watch.broker_lost_something(node.node.id, whole_disk=False)
        self.cluster.power_cut(node.node.name)

    async def kill(self) -> bool:
        node = self._any_node()
        if node is None or not self._kill(node):
            return False
        await self._die_and_come_back(node)
        return True

    async def power_cut(self, *, garbage: bool = False) -> bool:
        node = self._any_node()
        if node is None or not self._budget.may_die(node, losing=True):
            return False
        disk = self.universe.disk(node.node.name)
        disk.garbage, disk.unguarded = garbage, leader_epochs
        self.cut_power(node)
        await self._die_and_come_back(node)
        return True

    async def lose_disk(self) -> bool:
        node = self._pick(self.cluster.brokers)
        if node is None or not self._budget.may_die(node, losing=True):
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
        self._armed[name] = current_fault.get()
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
        self.coverage.strike(self._armed.get(name, "kill"), node)
        if power_cut and self._budget.may_die(node, losing=True):
            if node.node.is_broker:
                self.watch.broker_lost_something(node.node.id, whole_disk=False)
            return True
        return False if self._budget.may_die(node) else None

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
            self.coverage.strike(current_fault.get(), node)
        for node in nodes:
            self.cluster.kill(node.node.name)
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(self._die_and_come_back, node)
        return len(nodes) > 3

    # ---- wires

    def _everybody(self) -> list[str]:
        return [*self.cluster.nodes, *self.clients]

    async def _break(self, fault: WireFault, *, at_least: float = 0.0) -> bool:
        """Hold the links until it is over; True if anything was kept from passing."""
        refused, ends = fault.refused, fault.ends
        for name in [name for name in self.cluster.nodes if name in ends]:
            self.coverage.strike(current_fault.get(), self.cluster.nodes[name])
        self._cut_links.cut(fault)
        try:
            await self._hold(at_least)
        finally:
            self._cut_links.mend(fault)
        return any(now > before for now, before in zip(fault.refused, refused, strict=True))

    async def pause(self) -> bool:
        """As a process that is frozen looks from outside: nothing is lost, nothing moves, its time goes on."""
        node = self._any_node()
        if node is None:
            return False
        name = node.node.name
        return await self._break(WireFault(self._cut_links.between([name], self._everybody()), stalled=True))

    async def isolate(self) -> bool:
        node = self._any_node()
        if node is None:
            return False
        others = self._everybody() if self._chance.random() < 0.5 else list(self.cluster.nodes)
        return await self._break(WireFault(self._cut_links.between([node.node.name], others)))

    async def cut_off_from_nodes(self) -> bool:
        """A broker, one that coordinates something where there is one, for so long that it is replaced and must know
        it. Clients still reach it, and one asks it."""
        coordinators = {
            partition.leader
            for name in (GROUP_TOPIC, TRANSACTION_TOPIC)
            if name in self.watch.quorum.image.topics.by_name
            for partition in self.watch.quorum.image.topics.by_name[name].partitions.values()
        }
        brokers = self.cluster.brokers
        node = self._pick([each for each in brokers if each.node.id in coordinators]) or self._pick(brokers)
        if node is None:
            return False
        plan, name = self.plan, node.node.name
        session_seconds = int(plan.settings["broker.session.timeout.ms"]) / 1000
        groups = [group.group_id for group in plan.groups]
        if plan.transactions is not None:
            groups.append(plan.transactions.transform.group_id)
        self._asking = world = self._asking or make_world(HOST, self.universe)
        client = CutOffClient(world, node, session_seconds, groups, self.findings, lambda: self.watch.quorum.image)
        self._busy[name] = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.ask_on)
                fault = WireFault(self._cut_links.between([name], self.cluster.nodes))
                held = await self._break(fault, at_least=3 * session_seconds + 2.0)
                nursery.cancel_scope.cancel()
        finally:
            self._busy.pop(name, None)
        return held

    async def isolate_client(self) -> bool:
        """Whoever it was to the cluster, it may not be that any more when it comes back."""
        client = self._chance.choice(self.clients)
        fault = WireFault(self._cut_links.between([client], self.cluster.nodes), stalled=self._chance.random() < 0.5)
        longer_than_a_session = SESSION_TIMEOUT_MS / 1000 + 6.0
        return await self._break(fault, at_least=self._chance.choice((0.0, longer_than_a_session)))

    async def one_way(self) -> bool:
        node = self._any_node()
        if node is None:
            return False
        name, others = [node.node.name], list(self.cluster.nodes)
        some, rest = (name, others) if self._chance.random() < 0.5 else (others, name)
        return await self._break(WireFault(self._cut_links.between(some, rest, both_ways=False)))

    def _halves(self) -> tuple[list[str], list[str]]:
        names = list(self.cluster.nodes)
        self._chance.shuffle(names)
        size = self._chance.randint(1, len(names) - 1)
        return names[:size], names[size:]

    async def halves(self) -> bool:
        left, right = self._halves()
        return await self._break(WireFault(self._cut_links.between(left, right)))

    async def bridge(self) -> bool:
        left, right = self._halves()
        middle = self._chance.choice(list(self.cluster.nodes))
        left, right = [n for n in left if n != middle], [n for n in right if n != middle]
        return await self._break(WireFault(self._cut_links.between(left, right)))

    async def clog(self) -> bool:
        """A few paths stand still."""
        names = self._everybody()
        pairs = [(a, b) for a in names for b in names if a != b]
        links = [self.universe.wires.link(*pair) for pair in self._chance.sample(pairs, 3)]
        return await self._break(WireFault(links, stalled=True))

    async def slow_links(self) -> bool:
        return await self._bad_links.slow()

    async def lossy_links(self) -> bool:
        return await self._bad_links.lossy()

    async def half_open(self) -> bool:
        node = self._any_node()
        return node is not None and await self._bad_links.half_open(node.node.name)

    async def resets(self) -> bool:
        return await self._bad_links.resets()

    async def reconnect_storm(self) -> bool:
        return await self._bad_links.storm()

    async def dribble(self) -> bool:
        return await self._bad_links.dribble(self._chance.choice(self._everybody()))

    async def names_gone(self) -> bool:
        return await self._bad_links.names_gone()

    # ---- clocks and disks

    async def clock_jump(self) -> bool:
        node = self._any_node()
        if node is None:
            return False
        self._wrong_clocks.jump(node.node.name)
        await self._hold()
        return True

    async def slow_disk(self) -> bool:
        """Blocking work takes its time: an fsync that hangs for seconds now and then."""
        node = self._any_node()
        if node is None:
            return False
        name = node.node.name
        self.universe.slow_disk(name, (self._chance.choice((20.0, 100.0)), self._chance.choice((50.0, 400.0, 1_500.0))))
        await self._hold()
        self.universe.slow_disk(name, self.plan.blocking_ms)
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
        if node is None or not self._budget.may_die(node):
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
        if node is None or not self._budget.may_die(node):
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
    "power cut with garbage": lambda nemesis: nemesis.power_cut(garbage=True),
    "power cut at a point": lambda nemesis: nemesis.die_at_point(power_cut=True),
    "kill at a disk operation": Nemesis.die_at_disk_operation,
    "power cut at a disk operation": lambda nemesis: nemesis.die_at_disk_operation(power_cut=True),
    "stop and start": Nemesis.stop_and_start,
    "restart all": Nemesis.restart_all,
    "pause": Nemesis.pause,
    "isolate": Nemesis.isolate,
    "isolate a client": Nemesis.isolate_client,
    CUT_OFF_FROM_NODES: Nemesis.cut_off_from_nodes,
    "one way": Nemesis.one_way,
    "halves": Nemesis.halves,
    "bridge": Nemesis.bridge,
    "slow links": Nemesis.slow_links,
    "clog": Nemesis.clog,
    "lossy links": Nemesis.lossy_links,
    "half open": Nemesis.half_open,
    "resets": Nemesis.resets,
    "reconnect storm": Nemesis.reconnect_storm,
    "dribble": Nemesis.dribble,
    "names gone": Nemesis.names_gone,
    "slow disk": Nemesis.slow_disk,
    "clock jump": Nemesis.clock_jump,
    "disk error": Nemesis.disk_error,
    "disk full": Nemesis.disk_full,
    "disk lost": Nemesis.lose_disk,
}
