"""A cluster that is nothing but notes: who runs, what is cut, which brokers have lost something."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, cast

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.rules import MessageRule, Way
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, ReplicaState
from barnabas.protocol.schema import Message
from barnabas.runtime.world import Connection, DialRefused, World
from loss_budget import Membership, NodeState
from operations import Place
from worlds.cluster import AuthorityStep, Damage, LinkFault, ReplicaView

PLACE = Place("t", 0)
OFTEN, NOW_AND_THEN = 2.0, 0.1
"""Requests in a second."""
RESYNC_SECONDS = 4.0


class _Nowhere:
    async def dial(self, host: str, port: int) -> Connection:
        raise DialRefused(f"nobody listens at {host}:{port}")


@dataclass
class FakeCluster:
    """Three brokers with one partition, three controllers. A broker that is started is in sync some seconds later."""

    cannot: Mapping[str, str] = field(default_factory=dict)
    name: str = "fake"
    bootstrap_servers: str = "nowhere:1"
    brokers: Sequence[str] = ("broker-1", "broker-2", "broker-3")
    controllers: Sequence[str] = ("controller-101", "controller-102", "controller-103")
    on_loss: Callable[[str], None] = lambda name: None
    fails: str = ""
    """A call that fails."""
    rare: Sequence[str] = ()
    """Nodes in rare states."""

    def __post_init__(self) -> None:
        self.state: dict[str, NodeState] = dict.fromkeys((*self.brokers, *self.controllers), "running")
        self.in_sync_at: dict[str, float] = dict.fromkeys(self.brokers, 0.0)
        self.lost: dict[str, None] = {}
        self.cuts: dict[tuple[str, str], None] = {}
        self.links: dict[tuple[str, str], LinkFault] = {}
        self.rules: dict[int, MessageRule] = {}
        self.clocks: dict[str, int] = {}
        self.full: dict[str, None] = {}
        self.armed: dict[str, tuple[str, bool]] = {}
        self.freezes: dict[str, str] = {}
        self.simulated: dict[tuple[str, ...], None] = {}
        """Faults that only a simulation has."""
        self.renewed: dict[str, int] = {}
        self.broken_files: dict[str, None] = {}
        self.steps: list[AuthorityStep] = []
        self.calls: list[str] = []

    def world(self, host: str) -> World:
        """Clients find nobody there."""
        return cast(World, SimpleNamespace(network=_Nowhere(), wall_clock=SimpleNamespace(now_ms=lambda: 0)))

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        await trio.sleep(0.01)
        if name == self.fails:
            raise ClusterError(f"{name} fails")

    def _end(self, name: str, *, losing: bool = False) -> None:
        self.state[name] = "dead"
        if name in self.brokers:
            self.in_sync_at[name] = float("inf")
            if losing:
                self.lost[name] = None
                self.on_loss(name)

    def _in_sync(self) -> tuple[str, ...]:
        for name, at in self.in_sync_at.items():
            if at <= trio.current_time():
                self.lost.pop(name, None)
        return tuple(name for name, at in self.in_sync_at.items() if at <= trio.current_time())

    async def kill(self, *names: str) -> None:
        await self._call("kill")
        for name in names:
            assert self.state[name] != "dead", f"{name} is killed twice"
            self._end(name)

    async def start(self, *names: str) -> None:
        await self._call("start")
        for name in names:
            assert self.state[name] == "dead"
            self.state[name] = "running"
            if name in self.brokers:
                self.in_sync_at[name] = trio.current_time() + RESYNC_SECONDS

    async def stop(self, name: str) -> None:
        await self._call("stop")
        self._end(name)

    async def pause(self, name: str) -> None:
        await self._call("pause")
        self.state[name] = "paused"

    async def resume(self, name: str) -> None:
        await self._call("resume")
        self.state[name] = "running"

    async def unregister(self, name: str) -> None:
        await self._call("unregister")
        assert self.state[name] == "dead"

    async def states(self) -> Mapping[str, NodeState]:
        await trio.lowlevel.checkpoint()
        return dict(self.state)

    async def cut(self, source: str, target: str) -> None:
        await self._call("cut")
        self.cuts[source, target] = None

    async def mend(self, source: str, target: str) -> None:
        await self._call("mend")
        del self.cuts[source, target]

    async def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        await self._call("set_link")
        self.links[source, target] = fault
        if fault == LinkFault():
            del self.links[source, target]

    async def add_rule(self, rule: MessageRule) -> int:
        await self._call("add_rule")
        self.rules[len(self.calls)] = rule
        return len(self.calls)

    async def clear_rule(self, number: int) -> int:
        await self._call("clear_rule")
        del self.rules[number]
        return 7

    async def asked(self) -> Mapping[Way, int]:
        await self._call("asked")
        return {way: int(rate * trio.current_time()) for way, rate in self._rates()}

    def _rates(self) -> Iterator[tuple[Way, float]]:
        """Everybody does what is steady; a transaction comes now and then, of one client only, and nobody votes."""
        for broker in self.brokers:
            yield from ((Way(api_key, "client", broker), OFTEN) for api_key in (ApiKey.PRODUCE, ApiKey.FETCH))
            yield Way(ApiKey.BROKER_HEARTBEAT, broker, self.controllers[0]), OFTEN
            for other in (*self.brokers, self.controllers[0]):
                if other != broker:
                    yield Way(ApiKey.FETCH, broker, other), OFTEN
        yield Way(ApiKey.END_TXN, "client", self.brokers[0]), OFTEN
        yield Way(ApiKey.INIT_PRODUCER_ID, "client", self.brokers[0]), NOW_AND_THEN

    async def heal(self) -> None:
        await self._call("heal")
        self.cuts.clear()
        self.links.clear()
        self.rules.clear()
        self.simulated.clear()
        self.broken_files.clear()

    async def set_clock(self, name: str, offset_ms: int) -> None:
        await self._call("set_clock")
        self.clocks[name] = offset_ms

    async def power_cut(self, name: str) -> None:
        await self._call("power_cut")
        self._end(name, losing=True)

    async def fill_disk(self, name: str, *, full: bool) -> None:
        await self._call("fill_disk")
        self.full.pop(name, None)
        if full:
            self.full[name] = None

    async def damage(self, name: str, damage: Damage) -> Sequence[str]:
        await self._call("damage")
        assert self.state[name] == "dead"
        self._end(name, losing=True)
        return [damage.pattern]

    async def wipe(self, name: str) -> None:
        await self._call("wipe")
        assert self.state[name] == "dead"
        self._end(name, losing=True)

    async def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        await self._call("kill_at")
        self.armed[name] = (point, power_cut)

    async def pause_at(self, name: str, point: str) -> None:
        await self._call("pause_at")
        self.freezes[name] = point

    async def disarm(self, name: str) -> bool:
        await self._call("disarm")
        if self.freezes.pop(name, None) is not None and self.state[name] == "running":
            self.state[name] = "paused"
            return True
        armed = self.armed.pop(name, None)
        if armed is None or self.state[name] == "dead":
            return False
        self._end(name, losing=armed[1])
        return True

    async def renew_certificate(self, name: str) -> None:
        await self._call("renew_certificate")
        self.broken_files.pop(name, None)
        self.renewed[name] = self.renewed.get(name, 0) + 1

    async def spoil_certificate(self, name: str) -> None:
        await self._call("spoil_certificate")
        assert self.state[name] != "dead", f"{name} could not start"
        self.broken_files[name] = None

    async def change_authority(self, step: AuthorityStep) -> None:
        await self._call("change_authority")
        assert not self.broken_files, "the old authority is still needed"
        self.steps.append(step)

    async def leader_of(self, place: Place) -> str | None:
        in_sync = self._in_sync()
        return in_sync[0] if in_sync else None

    async def active_controller(self) -> str | None:
        return next((name for name in self.controllers if self.state[name] == "running"), None)

    async def coordinator_of(self, kind: Literal["group", "transaction", "share"], id_: str) -> str | None:
        return await self.leader_of(PLACE)

    async def views(self) -> Sequence[ReplicaView]:
        await self._call("views")
        return [ReplicaView("broker-1", PLACE, 1, 1, 0, 1, (1,))]

    async def memberships(self) -> Sequence[Membership]:
        await self._call("memberships")
        running = [name for name in self.brokers if self.state[name] == "running"]
        return [Membership(name, PLACE, tuple(self.brokers), self._in_sync(), ()) for name in running]

    async def ask(self, name: str, request: Message) -> Any:
        await self._call("ask")
        if not isinstance(request, DescribeQuorumRequest):
            return SimpleNamespace(error_code=0, results=[])
        voters = [
            ReplicaState(replica_id=int(each.rpartition("-")[2]), replica_directory_id=b"d" * 16)
            for each in self.controllers
        ]
        partition = SimpleNamespace(error_code=0, current_voters=voters, observers=[])
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])

    # ---- what only a simulation has

    def log_dirs(self, name: str) -> Sequence[str]:
        return [f"/{name}/data", f"/{name}/second"]

    def voter_address(self, name: str) -> tuple[str, int]:
        return name, 9093

    async def lost_voters(self) -> Sequence[ReplicaKey]:
        return []

    async def may_lose_a_voter(self) -> bool:
        return True

    async def next_active_controller(self, name: str, timeout_seconds: float) -> str | None:
        return await self.active_controller()

    def client_hosts(self) -> Sequence[str]:
        return ["client-0", "client-1"]

    def nodes_in_rare_states(self) -> Sequence[str]:
        return [name for name in self.rare if self.state[name] == "running"]

    async def _simulate(self, call: str, *what: str, on: bool = True) -> None:
        await self._call(call)
        self.simulated.pop((call, *what), None)
        if on:
            self.simulated[(call, *what)] = None

    async def torn_power_cut(self, name: str) -> None:
        await self.power_cut(name)

    async def kill_at_write(self, name: str, count: int, *, power_cut: bool = False) -> None:
        await self.kill_at(name, f"write {count}", power_cut=power_cut)

    async def break_disk(self, name: str, operation: str, probability: float) -> None:
        await self._simulate("break_disk", name)

    async def repair_disk(self, name: str) -> int:
        await self._simulate("break_disk", name, on=False)
        return 3

    async def slow_disk(self, name: str, milliseconds: tuple[float, float] | None) -> None:
        await self._simulate("slow_disk", name, on=milliseconds is not None)

    store_faults = ("unavailable", "slow")

    async def break_object_store(self, how: str, operation: str, probability: float) -> None:
        await self._simulate("break_object_store")

    async def heal_object_store(self) -> None:
        await self._simulate("break_object_store", on=False)

    async def stall(self, source: str, target: str, *, on: bool) -> None:
        await self._simulate("stall", source, target, on=on)

    async def dribble(self, name: str, *, on: bool) -> None:
        await self._simulate("dribble", name, on=on)

    async def hide_names(self, names: Sequence[str], *, on: bool) -> None:
        for name in names:
            await self._simulate("hide_names", name, on=on)
