"""The nemesis: breaks a cluster for a while, again and again, within the budget of loss, and tells what it did.

Deterministic: whoever gives the same chance to the same cluster gets the same faults at the same times; the simulation
uses it as well. What each kind does is in `faults.py`. A fault is told of as Jepsen does: `invoke` when it begins to
act, `info` when it has acted; its end likewise, under a name of its own (`heal`, `start`, `resume`), with the same
number. What was not over at the end of the run ends with a `heal`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import trio

from barnabas.cluster.errors import ClusterError
from loss_budget import LossBudget, NodeState, ObservedBudget
from nemeses.choosing import between, happens, one_of, shuffled, some_of, weighted
from nemeses.messages import Wish
from nemeses.traffic import Traffic
from operations import Place
from runtime.world import Chance
from worlds.cluster import ClusterUnderTest, LinkFault

Tell = Callable[[Literal["invoke", "info"], str, Mapping[str, Any]], object]
"""(type, f, value): becomes a line of the history."""


def _nobody_listens(_type: str, _f: str, _value: Mapping[str, Any]) -> None:
    """For runs without a history."""


SHORTEST = 0.3
"""Of the interval: how long a fault lasts at least; at most it is as long as the interval."""
AGAIN_SECONDS = 0.5
TRIES = 4
START_PATIENCE_SECONDS = 30.0

CUTTING = ("partition", "cut-off")
"""Kinds that cut links whole."""
ANY_SINGLE = {"one": 4.0, "leader": 3.0, "controller": 1.5, "coordinator": 1.5}
ANY = {**ANY_SINGLE, "minority": 2.0, "majority": 1.0, "all": 0.5}
"""Whom a fault of nodes is aimed at, and how often."""


@dataclass(frozen=True, slots=True)
class NemesisOptions:
    """What else there is to say."""

    beyond_budget: bool = False
    """Faults may lose what was acknowledged."""
    at_once: int = 2
    """Faults that hold at the same time, at most."""
    min_insync_replicas: int = 2
    coordinated: Sequence[tuple[Literal["group", "transaction"], str]] = ()
    """Groups and transactional ids of the workload, whose coordinators are targets."""
    only: Sequence[int] = ()
    """Numbers of the faults that come about; the others leave their time empty. None: all do."""
    session_seconds: float = 9.0
    """broker.session.timeout.ms of the nodes."""
    wishes: Sequence[Wish] = ()
    """What `message` is about; none: whatever is sent."""
    points: Sequence[str] = ()
    """Fault points for `kill-at` and `pause-at`; none: all that there are."""


class GaveUp(Exception):
    """A fault found nothing that it could break now."""


@dataclass(slots=True, eq=False)
class Fault:
    """One of them, from its beginning to its end. It has a chance of its own, so that what it draws does not depend on
    what others draw meanwhile."""

    nemesis: Nemesis
    number: int
    kind: str
    chance: Chance
    seconds: float
    nodes: list[str] = field(default_factory=list)
    """That it holds: no other fault of nodes takes them."""
    links: list[tuple[str, str]] = field(default_factory=list)
    rule: int | None = None
    """For messages, by the cluster's number of it."""
    value: dict[str, Any] = field(default_factory=dict)
    is_on: bool = False
    """It was told of."""

    @property
    def cluster(self) -> ClusterUnderTest:
        return self.nemesis.cluster

    @asynccontextmanager
    async def told(self, f: str, **more: Any) -> AsyncIterator[None]:
        """The block acts: `invoke` before it, `info` after it. What it cannot do is told, and ends the fault."""
        self.value.update(more)
        value = {"number": self.number, "kind": self.kind, **self.value}
        tell = self.nemesis.tell
        tell("invoke", f, value)
        self.is_on = True
        try:
            yield
        except ClusterError as error:
            tell("info", f, {**value, "error": str(error)})
            raise
        except BaseException:
            tell("info", f, {**value, "error": "interrupted"})
            raise
        tell("info", f, value | self.value)

    async def hold(self) -> None:
        await trio.sleep(self.seconds)

    def give_up(self) -> NoReturn:
        raise GaveUp

    # ---- nodes

    async def choose_nodes(self, among: Sequence[str] | None = None, *, single: bool = False) -> list[str]:
        """Running nodes that no fault holds, held from now on. Raises GaveUp if there is none."""
        nemesis, cluster, chance = self.nemesis, self.cluster, self.chance
        everybody = [*cluster.brokers, *cluster.controllers] if among is None else list(among)
        aim = weighted(chance, ANY_SINGLE if single else ANY)
        role = one_of(chance, [list(cluster.brokers), list(cluster.controllers)])
        role = [name for name in role if name in everybody] or everybody
        aimed: list[str | None]
        if aim == "leader":
            aimed = [await nemesis.some_leader(chance)]
        elif aim == "controller":
            aimed = [await cluster.active_controller()]
        elif aim == "coordinator":
            aimed = [await nemesis.some_coordinator(chance)]
        else:
            count = {"one": 1, "minority": (len(role) - 1) // 2, "majority": len(role) // 2 + 1, "all": len(role)}[aim]
            aimed = [*some_of(chance, role, max(1, count))]
        states = await cluster.states()
        free = [name for name in everybody if states.get(name) == "running" and not nemesis.is_held(name)]
        found = [name for name in aimed if name in free]
        if not found and free:
            aim, found = "one", [one_of(chance, free)]
        if not found:
            self.give_up()
        self.nodes += found
        self.value |= {"targets": found, "aim": aim}
        return found

    async def may_end(self, names: Sequence[str], *, losing: bool = False) -> None:
        """Raises GaveUp if that could lose what was acknowledged. Act in the same turn."""
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
        """Those of its nodes that do not run."""
        states = await self.cluster.states()
        dead = [name for name in self.nodes if states[name] == "dead"]
        async with self.told(f):
            if dead:
                await self.cluster.start(*dead)

    # ---- links

    def choose_links(self, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those that no other fault has; its own from now on."""
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
        """What was held goes on; tells how many messages the rule met, where the cluster counts them."""
        if self.rule is None:
            return
        met = await self.cluster.clear_rule(self.rule)
        self.rule = None
        if met is not None:
            self.value["met"] = met


Story = Callable[[Fault], Awaitable[None]]


class Nemesis:
    """Of one run."""

    def __init__(
        self,
        cluster: ClusterUnderTest,
        kinds: Sequence[str],
        chance: Chance,
        interval_seconds: float,
        tell: Tell | None = None,
        options: NemesisOptions | None = None,
    ) -> None:
        """Raises ClusterError for a kind that there is not. Those that this world cannot do are left out."""
        from nemeses.faults import STORIES

        unknown = [kind for kind in kinds if kind not in STORIES]
        if unknown:
            raise ClusterError(f"--nemesis {','.join(unknown)}: there is only {', '.join(STORIES)}")
        self.cluster = cluster
        self.kinds = [kind for kind in kinds if kind not in cluster.cannot]
        self.interval_seconds = interval_seconds
        self.tell: Tell = tell or _nobody_listens
        self.options = options or NemesisOptions()
        self.traffic = Traffic(cluster, interval_seconds)
        self.budget: LossBudget = ObservedBudget(cluster.brokers, self.options.min_insync_replicas)
        self.active: list[Fault] = []
        self._stories = STORIES
        self._chance = chance
        self._bag: list[str] = []
        self._left: list[Fault] = []
        """That were not over when the run was."""
        self._began = 0
        self._changed_clocks: dict[str, None] = {}
        self._changed_disks: dict[str, None] = {}
        self._armed: dict[str, None] = {}

    async def run(self, tell: Tell | None = None) -> None:
        """Breaks things until cancelled; then call `undo_all`."""
        self.tell = tell or self.tell
        if not self.kinds:
            await trio.sleep_forever()
        await self._listen()
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self.interval_seconds * between(self._chance, 0.5, 1.5) / self.options.at_once)
                await self._listen()
                if len(self.active) < self.options.at_once:
                    nursery.start_soon(self._one, self._next())

    async def _listen(self) -> None:
        """What is sent, where faults are drawn of it."""
        if "message" in self.kinds:
            # Whoever breaks something next tells what is wrong.
            with suppress(ClusterError):
                await self.traffic.look()

    def _next(self) -> Fault:
        """Every kind comes as often as the others: they are drawn from a bag until it is empty."""
        if not self._bag:
            self._bag = shuffled(self._chance, self.kinds)
        self._began += 1
        seconds = self.interval_seconds * between(self._chance, SHORTEST, 1.0)
        fault = Fault(self, self._began, self._bag.pop(), random.Random(self._chance.randbytes(16)), seconds)
        self.active.append(fault)
        return fault

    async def _one(self, fault: Fault) -> None:
        try:
            if self.options.only and fault.number not in self.options.only:
                await fault.hold()
            else:
                await self._try(fault)
        except ClusterError:
            # Told of already. What it broke until then is mended, as far as that goes.
            await self._mend(fault)
        except trio.Cancelled:
            if fault.is_on:
                self._left.append(fault)
            raise
        finally:
            self.active.remove(fault)

    async def _try(self, fault: Fault) -> None:
        """What cannot be broken now may be in a moment."""
        for _ in range(TRIES):
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
            async with fault.told("mend"):
                await self._wake(fault.nodes)
        except ClusterError:
            # `undo_all` tries again.
            return

    async def _mend_links(self, fault: Fault) -> None:
        for source, target in fault.links:
            if fault.kind in CUTTING:
                await self.cluster.mend(source, target)
            else:
                await self.cluster.set_link(source, target, LinkFault())

    async def _wake(self, nodes: Sequence[str]) -> None:
        """Whoever does not run does so again."""
        states = await self.cluster.states()
        for name in nodes:
            if states[name] == "paused":
                await self.cluster.resume(name)
        dead = [name for name in nodes if states[name] == "dead"]
        if dead:
            await self.cluster.start(*dead)

    async def undo(self, tell: Tell) -> None:
        """`undo_all`, told to whom it is now to be told."""
        self.tell = tell
        await self.undo_all()

    async def undo_all(self) -> None:
        """Everything is whole again: links, messages, clocks, disks, and every node runs. Raises ClusterError if a node
        cannot be started within half a minute."""
        value = {"number": 0, "kind": "all", "targets": [*self.cluster.brokers, *self.cluster.controllers]}
        self.tell("invoke", "heal", value)
        for fault in self._left:
            await fault.clear_rule()
        await self.cluster.heal()
        for name in self._armed:
            await self.cluster.disarm(name)
        for name in self._changed_disks:
            await self.cluster.fill_disk(name, full=False)
        for name in self._changed_clocks:
            await self.cluster.set_clock(name, 0)
        deadline = trio.current_time() + START_PATIENCE_SECONDS
        while True:
            states: Mapping[str, NodeState] = await self.cluster.states()
            if all(state == "running" for state in states.values()):
                break
            try:
                await self._wake(list(states))
            except ClusterError:
                if trio.current_time() > deadline:
                    raise
            await trio.sleep(AGAIN_SECONDS)
        self.tell("info", "heal", value)
        for fault in self._left:
            left = {"number": fault.number, "kind": fault.kind, "targets": fault.value.get("targets", [])}
            self.tell("invoke", "heal", left)
            met = {"met": fault.value["met"]} if "met" in fault.value else {}
            self.tell("info", "heal", left | met)
        self._left.clear()

    # ---- what faults ask

    def is_held(self, name: str) -> bool:
        return name in self.held()

    def held(self, but: Fault | None = None) -> list[str]:
        """The nodes that faults hold now."""
        return [name for fault in self.active if fault is not but for name in fault.nodes]

    async def look(self) -> None:
        """The budget learns how things are."""
        states = await self.cluster.states()
        memberships = await self.cluster.memberships()
        self.budget.observe(states, memberships, self.held())

    async def some_leader(self, chance: Chance) -> str | None:
        """Of a partition of the run's topics; mostly one with records."""
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

    async def pause_at(self, name: str, point: str) -> None:
        self._armed[name] = None
        await self.cluster.pause_at(name, point)

    async def disarm(self, name: str) -> bool:
        self._armed.pop(name, None)
        return await self.cluster.disarm(name)
