"""The nemesis: breaks a cluster for a while, again and again, within the loss budget, and reports what it did.

It is deterministic: the same chance and the same cluster give the same faults at the same times. `make simulate` and
`python jepsen-style run` both use it. `kinds.py` lists the kinds of faults; `faults.py` and `simulated_faults.py` carry
them out. A fault is reported as in Jepsen: `invoke` when it begins to act, `info` when it has acted, and the same for
its end under a name of its own (`heal`, `start`, `resume`), with the same number. A fault that is still on at the end
of the run ends with a `heal`.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, cast

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.runtime.world import Chance
from loss_budget import LossBudget, NodeState, ObservedBudget
from nemeses.choosing import between, happens, one_of, shuffled, some_of, weighted
from nemeses.kinds import KINDS
from nemeses.messages import Wish
from nemeses.shapes import CLIENT
from nemeses.shapes import between as links_between
from nemeses.traffic import Traffic
from operations import Place
from worlds.cluster import ClusterUnderTest, LinkFault, LivingQuorum, SimulatedWorld, current_fault

Report = Callable[[Literal["invoke", "info"], str, Mapping[str, Any]], object]
"""(type, f, value): becomes a line of the history."""


def _no_report(_type: str, _f: str, _value: Mapping[str, Any]) -> None:
    """For runs without a history."""


SHORTEST, LONGEST = 0.46, 1.54
"""Duration of a fault, in mean durations."""
MEAN_SHARE = 0.65
"""Mean duration of a fault, in intervals, unless the options name another."""
RETRY_SECONDS = 0.5
TRIES = 4
START_TIMEOUT_SECONDS = 30.0
AIM_SECONDS = 0.02
"""Time between two looks for nodes in rare states."""
AIMED_PAUSE_SECONDS = 3.0
"""Mean time between aimed faults."""

ANY_SINGLE = {"one": 4.0, "leader": 3.0, "controller": 1.5, "coordinator": 1.5}
ANY = {**ANY_SINGLE, "minority": 2.0, "majority": 1.0, "all": 0.5}
"""Targets of a fault of nodes, and how often each is drawn."""
FATES = ("dead", "cut off", "paused", "deaf", "mute")
"""States in which `leave_broken` leaves a node."""


@dataclass(frozen=True, slots=True)
class NemesisOptions:
    """Optional settings of a nemesis."""

    beyond_budget: bool = False
    """Faults may lose acknowledged records."""
    at_once: int = 2
    """Maximum number of faults at a time."""
    mean_seconds: float | None = None
    """Mean duration of a fault; None: `MEAN_SHARE` of the interval."""
    min_insync_replicas: int = 2
    budget: LossBudget | None = None
    """None: a budget made of what brokers report."""
    coordinated: Sequence[tuple[Literal["group", "transaction", "share"], str]] = ()
    """Groups and transactional ids of the workload, whose coordinators are targets."""
    only: Sequence[int] = ()
    """Numbers of the faults that take place; the others leave their time empty. Empty: all."""
    session_seconds: float = 9.0
    """broker.session.timeout.ms of the nodes."""
    wishes: Sequence[Wish] = ()
    """Messages for `message` to draw from; empty: whatever is sent."""
    points: Sequence[str] = ()
    """Fault points for `kill-at` and `pause-at`; empty: all."""
    hostile_pause_seconds: float | None = None
    """Mean time between two requests of a hostile client; None: each draws its own."""
    aims: bool = False
    """Some faults wait for nodes in rare states and strike those. For simulated clusters only."""


class GaveUp(Exception):
    """A fault found nothing that it could break now."""


@dataclass(slots=True, eq=False)
class Fault:
    """One fault, from its beginning to its end. It has a chance of its own, so that its draws do not depend on those of
    other faults."""

    nemesis: Nemesis
    number: int
    kind: str
    chance: Chance
    seconds: float
    aimed_at: str | None = None
    """Node to strike, if this fault can."""
    nodes: list[str] = field(default_factory=list)
    """Nodes that it holds: no other fault of nodes takes them."""
    links: list[tuple[str, str]] = field(default_factory=list)
    """Links that it holds."""
    rule: int | None = None
    """The cluster's number of its rule for messages."""
    value: dict[str, Any] = field(default_factory=dict)
    is_on: bool = False
    """It began to act."""

    @property
    def cluster(self) -> ClusterUnderTest:
        return self.nemesis.cluster

    @property
    def simulated(self) -> SimulatedWorld:
        """The same cluster, for kinds that need a simulation."""
        return cast(SimulatedWorld, self.nemesis.cluster)

    @property
    def living(self) -> LivingQuorum:
        """The same cluster, for kinds that need voters that can change."""
        return cast(LivingQuorum, self.nemesis.cluster)

    @asynccontextmanager
    async def acting(self, f: str, **more: Any) -> AsyncIterator[None]:
        """The block acts: reports `invoke` before it and `info` after it. A ClusterError is reported and ends the
        fault."""
        self.value.update(more)
        value = {"number": self.number, "kind": self.kind, **self.value}
        report = self.nemesis.report
        report("invoke", f, value)
        self.is_on = True
        try:
            yield
        except ClusterError as error:
            report("info", f, {**value, "error": str(error)})
            raise
        except BaseException:
            report("info", f, {**value, "error": "interrupted"})
            raise
        report("info", f, value | self.value)

    async def hold(self) -> None:
        await trio.sleep(self.seconds)

    def give_up(self) -> NoReturn:
        raise GaveUp

    def counts_as(self, variant: str) -> None:
        """Names the variant of this fault for the coverage table."""
        current_fault.set(f"{self.kind}: {variant}")

    # ---- nodes

    async def choose_nodes(self, among: Sequence[str] | None = None, *, single: bool = False) -> list[str]:
        """Chooses running nodes that no other fault holds, and holds them. Raises GaveUp if there is none."""
        nemesis, cluster, chance = self.nemesis, self.cluster, self.chance
        everybody = [*cluster.brokers, *cluster.controllers] if among is None else list(among)
        aim = weighted(chance, ANY_SINGLE if single else ANY)
        role = one_of(chance, [list(cluster.brokers), list(cluster.controllers)])
        role = [name for name in role if name in everybody] or everybody
        aimed: list[str | None]
        if self.aimed_at is not None:
            aim, aimed = "rare state", [self.aimed_at]
        elif aim == "leader":
            aimed = [await nemesis.some_leader(chance)]
        elif aim == "controller":
            aimed = [await cluster.active_controller()]
        elif aim == "coordinator":
            aimed = [await nemesis.some_coordinator(chance)]
        else:
            count = {"one": 1, "minority": (len(role) - 1) // 2, "majority": len(role) // 2 + 1, "all": len(role)}[aim]
            aimed = [*some_of(chance, role, max(1, count))]
        free = await self.free_nodes(everybody)
        found = [name for name in aimed if name in free]
        if not found and free:
            aim, found = "one", [one_of(chance, free)]
        if not found:
            self.give_up()
        self.nodes += found
        self.value |= {"targets": found, "aim": aim}
        return found

    async def free_nodes(self, among: Sequence[str]) -> list[str]:
        """Nodes that run and that no fault holds."""
        states = await self.cluster.states()
        return [name for name in among if states.get(name) == "running" and not self.nemesis.is_held(name)]

    async def may_end(self, names: Sequence[str], *, losing: bool = False) -> None:
        """Raises GaveUp if ending these nodes could lose acknowledged records. Act before the next checkpoint."""
        nemesis = self.nemesis
        await nemesis.look()
        held = nemesis.held(but=self)
        if not nemesis.options.beyond_budget and not nemesis.budget.may_end(names, losing=losing, held=held):
            self.give_up()
        nemesis.budget.ended(names, losing=losing)

    async def end(self, name: str) -> None:
        """Kills a node that may be about to end by itself."""
        try:
            await self.cluster.kill(name)
        except ClusterError:
            if (await self.cluster.states())[name] != "dead":
                raise

    async def start_again(self, f: str = "start") -> None:
        """Starts those of its nodes that do not run."""
        states = await self.cluster.states()
        dead = [name for name in self.nodes if states[name] == "dead"]
        async with self.acting(f):
            if dead:
                await self.cluster.start(*dead)

    # ---- links

    def choose_links(self, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Holds those of the links that no other fault holds. Raises GaveUp if there is none."""
        taken = [link for fault in self.nemesis.active for link in fault.links]
        found = [pair for pair in pairs if pair not in taken]
        if not found:
            self.give_up()
        self.links += found
        return found

    async def set_links(self, fault: LinkFault) -> None:
        for source, target in self.links:
            await self.cluster.set_link(source, target, fault)

    # ---- messages

    async def clear_rule(self) -> None:
        """Messages that were held go on. Notes how many messages the rule met, where the cluster counts them."""
        if self.rule is None:
            return
        met = await self.cluster.clear_rule(self.rule)
        self.rule = None
        if met is not None:
            self.value["met"] = met


Story = Callable[[Fault], Awaitable[None]]


class Nemesis:
    """The nemesis of one run."""

    def __init__(
        self,
        cluster: ClusterUnderTest,
        kinds: Sequence[str],
        chance: Chance,
        interval_seconds: float,
        report: Report | None = None,
        options: NemesisOptions | None = None,
    ) -> None:
        """A kind that stands several times in `kinds` comes so often. Kinds that this world cannot do are left out.
        Raises ClusterError for an unknown kind."""
        from nemeses.stories import STORIES

        unknown = [kind for kind in kinds if kind not in STORIES]
        if unknown:
            raise ClusterError(f"--nemesis must be one or more of {', '.join(STORIES)}; got {','.join(unknown)}")
        self.cluster = cluster
        self.kinds = [kind for kind in kinds if kind not in cluster.cannot]
        self.interval_seconds = interval_seconds
        self.report: Report = report or _no_report
        self.options = options or NemesisOptions()
        self.traffic = Traffic(cluster, interval_seconds)
        self.budget = self.options.budget or ObservedBudget(cluster.brokers, self.options.min_insync_replicas)
        self.active: list[Fault] = []
        self.took_hold: Counter[str] = Counter()
        """Number of faults that acted, by kind."""
        self.counts: Counter[str] = Counter()
        """Counts of what faults did, by name."""
        self.while_cut_off: Callable[[str], Awaitable[None]] | None = None
        """Runs beside a `cut-off`, with the name of the broker, and is cancelled at its end."""
        self._stories = STORIES
        self._chance = chance
        self._bag: list[str] = []
        self._left: list[Fault] = []
        """Faults that were still on at the end of the run."""
        self._began = 0
        self._changed_clocks: dict[str, None] = {}
        self._changed_disks: dict[str, None] = {}
        self._armed: dict[str, None] = {}

    async def run(self, report: Report | None = None) -> None:
        """Breaks things until it is cancelled; call `undo_all` afterwards."""
        self.report = report or self.report
        if not self.kinds:
            await trio.sleep_forever()
        await self._count_traffic()
        async with trio.open_nursery() as nursery:
            if self.options.aims:
                nursery.start_soon(self._aim, nursery)
            while True:
                await trio.sleep(self.interval_seconds * between(self._chance, 0.5, 1.5) / self.options.at_once)
                await self._count_traffic()
                if len(self.active) < self.options.at_once:
                    nursery.start_soon(self._one, self._next())

    async def _aim(self, nursery: trio.Nursery) -> None:
        """Strikes nodes in rare states as soon as there are any."""
        cluster = cast(SimulatedWorld, self.cluster)
        while True:
            await trio.sleep(AIM_SECONDS)
            rare = cluster.nodes_in_rare_states()
            if rare and len(self.active) < self.options.at_once:
                nursery.start_soon(self._one, self._next(aimed_at=one_of(self._chance, rare)))
                await trio.sleep(-AIMED_PAUSE_SECONDS * math.log(1.0 - self._chance.random()))

    async def _count_traffic(self) -> None:
        if "message" in self.kinds:
            # If the cluster does not answer, the next fault reports why.
            with suppress(ClusterError):
                await self.traffic.look()

    def _next(self, *, aimed_at: str | None = None) -> Fault:
        """Kinds are drawn from a bag until it is empty, so that every kind comes as often as the others."""
        if not self._bag:
            self._bag = shuffled(self._chance, self.kinds)
        self._began += 1
        mean_seconds = self.options.mean_seconds or MEAN_SHARE * self.interval_seconds
        seconds = mean_seconds * between(self._chance, SHORTEST, LONGEST)
        chance = random.Random(self._chance.randbytes(16))
        fault = Fault(self, self._began, self._bag.pop(), chance, seconds, aimed_at)
        self.active.append(fault)
        return fault

    async def _one(self, fault: Fault) -> None:
        try:
            if self.options.only and fault.number not in self.options.only:
                await fault.hold()
            else:
                await self._try(fault)
        except ClusterError:
            # It was reported. What it broke until then is mended as far as possible.
            await self._mend(fault)
        except trio.Cancelled:
            if fault.is_on:
                self._left.append(fault)
            raise
        finally:
            self.active.remove(fault)
            if fault.is_on and fault.value.get("struck") is not False:
                self.took_hold[fault.kind] += 1

    async def _try(self, fault: Fault) -> None:
        """Tries again for a while, since what cannot be broken now may be in a moment."""
        for _ in range(TRIES):
            current_fault.set(fault.kind)
            try:
                await self._stories[fault.kind](fault)
                return
            except GaveUp:
                fault.nodes.clear()
                fault.links.clear()
                fault.value.clear()
                await trio.sleep(min(fault.seconds, 1.0))

    async def _mend(self, fault: Fault) -> None:
        try:
            await self._mend_links(fault)
            async with fault.acting("mend"):
                await self._wake(fault.nodes)
        except ClusterError:
            # `undo_all` tries again.
            return

    async def _mend_links(self, fault: Fault) -> None:
        for source, target in fault.links:
            if KINDS[fault.kind].cuts:
                await self.cluster.mend(source, target)
            else:
                await self.cluster.set_link(source, target, LinkFault())

    async def _wake(self, nodes: Sequence[str]) -> None:
        """Resumes or starts those of the nodes that do not run."""
        states = await self.cluster.states()
        for name in nodes:
            if states[name] == "paused":
                await self.cluster.resume(name)
        dead = [name for name in nodes if states[name] == "dead"]
        if dead:
            await self.cluster.start(*dead)

    async def undo(self, report: Report) -> None:
        """`undo_all`, reported to `report` from now on."""
        self.report = report
        await self.undo_all()

    async def undo_all(self, but: Sequence[str] = ()) -> None:
        """Takes back all faults of links, messages, clocks and disks, and starts every node that does not run, except
        those in `but`. Raises ClusterError if a node cannot be started within half a minute."""
        nodes = [name for name in (*self.cluster.brokers, *self.cluster.controllers) if name not in but]
        value = {"number": 0, "kind": "all", "targets": nodes}
        self.report("invoke", "heal", value)
        for fault in self._left:
            await fault.clear_rule()
        await self.cluster.heal()
        for name in self._armed:
            await self.cluster.disarm(name)
        for name in self._changed_disks:
            await self.cluster.fill_disk(name, full=False)
        for name in self._changed_clocks:
            await self.cluster.set_clock(name, 0)
        deadline = trio.current_time() + START_TIMEOUT_SECONDS
        while True:
            states: Mapping[str, NodeState] = await self.cluster.states()
            if all(states[name] == "running" for name in nodes):
                break
            try:
                await self._wake(nodes)
            except ClusterError:
                if trio.current_time() > deadline:
                    raise
            await trio.sleep(RETRY_SECONDS)
        self.report("info", "heal", value)
        self._report_ends()

    def _report_ends(self) -> None:
        """The ends of the faults that were still on."""
        for fault in self._left:
            value = {"number": fault.number, "kind": fault.kind, "targets": fault.value.get("targets", [])}
            self.report("invoke", "heal", value)
            met = {"met": fault.value["met"]} if "met" in fault.value else {}
            self.report("info", "heal", value | met)
        self._left.clear()

    async def leave_broken(self, rest: Sequence[str]) -> dict[str, str]:
        """Takes back everything, except that the nodes in `rest` stay dead if they are, or die, freeze or are cut off
        until `undo_all`. Gives what became of each."""
        await self.undo_all(but=rest)
        fates: dict[str, str] = {}
        for name in rest:
            fates[name] = await self._leave_broken(name, one_of(self._chance, FATES))
        return fates

    async def _leave_broken(self, name: str, fate: str) -> str:
        cluster = self.cluster
        state = (await cluster.states())[name]
        if state == "dead":
            return "dead"
        if state == "paused":
            await cluster.resume(name)
        if fate == "dead":
            await self.look()
            if self.budget.may_end([name], losing=False):
                self.budget.ended([name], losing=False)
                await cluster.kill(name)
                return fate
        if fate == "paused":
            await cluster.pause(name)
            return fate
        others = [*cluster.brokers, *cluster.controllers, CLIENT]
        for source, target in links_between([name], others):
            if (fate == "deaf" and source == name) or (fate == "mute" and target == name):
                continue
            await cluster.cut(source, target)
        return "cut off" if fate == "dead" else fate

    # ---- questions of faults

    def is_held(self, name: str) -> bool:
        return name in self.held()

    def held(self, but: Fault | None = None) -> list[str]:
        """The nodes that faults hold now."""
        return [name for fault in self.active if fault is not but for name in fault.nodes]

    async def look(self) -> None:
        """Shows the budget the present state of the cluster."""
        states = await self.cluster.states()
        memberships = await self.cluster.memberships()
        self.budget.observe(states, memberships, self.held())

    async def some_leader(self, chance: Chance) -> str | None:
        """The leader of a partition of the run's topics, mostly of one with records."""
        views = await self.cluster.views()
        places: list[Place] = sorted({view.place for view in views})
        filled = sorted({view.place for view in views if view.high_watermark > 0})
        if not places:
            return None
        return await self.cluster.leader_of(one_of(chance, filled if filled and happens(chance, 0.8) else places))

    async def some_coordinator(self, chance: Chance) -> str | None:
        if not self.options.coordinated:
            return None
        kind, id_ = one_of(chance, self.options.coordinated)
        return await self.cluster.coordinator_of(kind, id_)

    async def set_clock(self, name: str, offset_ms: int) -> None:
        self._changed_clocks[name] = None
        await self.cluster.set_clock(name, offset_ms)

    async def fill_disk(self, name: str, *, full: bool) -> None:
        self._changed_disks[name] = None
        await self.cluster.fill_disk(name, full=full)

    async def kill_at(self, name: str, point: str, *, power_cut: bool) -> None:
        self._armed[name] = None
        await self.cluster.kill_at(name, point, power_cut=power_cut)

    async def kill_at_write(self, name: str, count: int, *, power_cut: bool) -> None:
        self._armed[name] = None
        await cast(SimulatedWorld, self.cluster).kill_at_write(name, count, power_cut=power_cut)

    async def pause_at(self, name: str, point: str) -> None:
        self._armed[name] = None
        await self.cluster.pause_at(name, point)

    async def disarm(self, name: str) -> bool:
        self._armed.pop(name, None)
        return await self.cluster.disarm(name)
