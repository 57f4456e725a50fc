"""Carries out the faults of a schedule, one after the other, and repairs each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import trio

from barnabas import Admin
from barnabas.check.instance import Instance
from barnabas.check.journal import Event, Journal, What
from barnabas.check.own_cluster import OwnCluster
from barnabas.check.schedule import Fault, Moment, Planned
from barnabas.check.watching import GroupWatch
from barnabas.check.ways import Ways
from barnabas.client.admin import MemberToRemove
from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.fault_rule import FaultRule, parse_rule
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import KafkaError

T = TypeVar("T")

WITH_EFFECT = ("Produce", "OffsetCommit", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
"""Requests whose answers are lost."""
AT_MOMENT = {
    Moment.COMMITTED: (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN),
    Moment.PRODUCED: (ApiKey.PRODUCE,),
}
"""Answers that pass just at a moment."""
_MOMENT_S = 3.0
"""Time for the moment to come."""
_LOST, _REFUSED = 0.5, 0.3
"""Probabilities."""
_REBALANCE_S = 10.0
"""Time for the others to take over from an instance that is gone."""
_SESSION_S = 1.5
"""Seconds after its kill at which an instance leaves the group: as if its session were that short."""
_IN_SYNC_S = 20.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Stage:
    """All that can be struck."""

    instances: Sequence[Instance]
    """Those that run all the time."""
    spare: Instance
    ways: Ways
    cluster: OwnCluster | None
    """None: it is somebody else's."""
    admin: Admin
    watch: GroupWatch
    topics: Sequence[str]
    grace_s: float


class Nemesis:
    """The faults of one run."""

    def __init__(self, stage: Stage, journal: Journal) -> None:
        self._stage = stage
        self._journal = journal
        self.struck: dict[Fault, int] = {}
        """Number of faults, by kind."""
        self._doomed: list[str] = []
        """Ids of the members of an instance that is being struck: their session is to end."""

    async def run(self, faults: Iterator[Planned]) -> None:
        """Until cancelled; a fault under way is then repaired by `repair`."""
        for planned in faults:
            await trio.sleep(planned.after_s)
            try:
                await self._strike(planned)
            except (ClusterError, KafkaError) as error:
                self._note(f"{planned.fault} was not possible: {error}", planned)

    async def repair(self) -> None:
        """Undoes all faults: the cluster is whole and all instances run."""
        stage = self._stage
        await stage.spare.terminate(stage.grace_s)
        for instance in stage.instances:
            instance.resume()
            instance.want()
        stage.ways.heal()
        if stage.cluster is not None:
            await _in_thread(stage.cluster.repair)
            await self._in_sync()
        # Members of an instance that was struck just now are still in the group.
        with suppress(KafkaError):
            await stage.watch.look(stage.admin)
            await self._expire([*self._doomed, *stage.watch.members_of(stage.spare.number)])
        open_faults = {it.fault: it for it in self._journal.events if it.what is What.FAULT}
        for event in self._journal.events:
            if event.what is What.REPAIR:
                open_faults.pop(event.fault, None)
        for number in open_faults:
            self._journal.add(Event(time.time(), What.REPAIR, "all faults are repaired", fault=number))

    async def _strike(self, planned: Planned) -> None:
        stage = self._stage
        instance = stage.instances[planned.choose(len(stage.instances))]
        match planned.fault:
            case Fault.KILL:
                await self._kill(planned, instance)
            case Fault.RESTART:
                await self._restart(planned, instance)
            case Fault.PAUSE:
                await self._pause(planned, instance)
            case Fault.SCALE:
                await self._scale(planned)
            case Fault.EXPIRE:
                self._begins(planned, "the sessions of all members expire")
                await self._expire(None)
                self._ends(planned, "members may join again")
            case Fault.CUT:
                await self._cut(planned, instance)
            case Fault.CUT_LEADER:
                await self._cut_leader(planned)
            case Fault.DROP_ANSWERS:
                rules = [parse_rule(f"{api} cut=response probability={_LOST}") for api in WITH_EFFECT]
                await self._lose(planned, rules, "connections are reset in place of answers")
            case Fault.REFUSE:
                rule = parse_rule(f"Produce error=NOT_ENOUGH_REPLICAS probability={_REFUSED}")
                await self._lose(planned, [rule], "Produce requests are refused: NOT_ENOUGH_REPLICAS")
            case Fault.KILL_LEADER | Fault.PAUSE_LEADER | Fault.KILL_COORDINATOR:
                await self._strike_broker(planned)

    # ---- instances

    async def _kill(self, planned: Planned, instance: Instance) -> None:
        with trio.move_on_after(_MOMENT_S):
            if planned.moment is not Moment.NOW:
                await self._stage.ways.answered(instance.number, AT_MOMENT[planned.moment])
        self._doomed = self._stage.watch.members_of(instance.number)
        self._begins(planned, f"kill -9 of {instance.name}, {planned.moment}", instance)
        await instance.kill()
        await trio.sleep(planned.length_s)
        instance.want()
        await trio.sleep(max(0.0, _SESSION_S - planned.length_s))
        await self._expire_doomed()
        self._ends(planned, f"{instance.name} runs again", instance)

    async def _restart(self, planned: Planned, instance: Instance) -> None:
        self._begins(planned, f"SIGTERM to {instance.name}", instance)
        self._doomed = self._stage.watch.members_of(instance.number)
        if not await instance.terminate(self._stage.grace_s):
            self._note(f"{instance.name} ignored SIGTERM for {self._stage.grace_s:.0f} s and was killed", planned)
        await trio.sleep(planned.length_s)
        instance.want()
        await self._expire_doomed()
        self._ends(planned, f"{instance.name} runs again", instance)

    async def _pause(self, planned: Planned, instance: Instance) -> None:
        """It goes on when others have its partitions."""
        self._begins(planned, f"{instance.name} is paused beyond its session", instance)
        self._doomed = self._stage.watch.members_of(instance.number)
        instance.pause()
        await trio.sleep(_SESSION_S)
        await self._expire_doomed()
        await self._taken_over(instance)
        await trio.sleep(planned.length_s)
        instance.resume()
        self._ends(planned, f"{instance.name} goes on", instance)

    async def _scale(self, planned: Planned) -> None:
        spare = self._stage.spare
        self._begins(planned, f"{spare.name} joins", spare)
        spare.want()
        await trio.sleep(planned.length_s)
        self._doomed = self._stage.watch.members_of(spare.number)
        await spare.terminate(self._stage.grace_s)
        await self._expire_doomed()
        self._ends(planned, f"{spare.name} has left", spare)

    async def _expire(self, members: Sequence[str] | None) -> None:
        """Removes members, or all of them, as the end of their sessions would."""
        described = self._stage.watch.described
        if described is None:
            return
        known = [it for it in described.members if members is None or it.member_id in members]
        wanted = [MemberToRemove(it.group_instance_id, it.member_id) for it in known]
        if wanted:
            await self._stage.admin.remove_members_from_consumer_group(
                described.group_id, wanted, reason="its session expired", raise_errors=False
            )

    async def _expire_doomed(self) -> None:
        await self._expire(self._doomed)
        self._doomed = []

    async def _taken_over(self, instance: Instance) -> None:
        """Waits until no partition is the instance's, or for a while."""
        with trio.move_on_after(_REBALANCE_S):
            while self._stage.watch.members_of(instance.number):
                await trio.sleep(_LOOK_S)

    # ---- links

    async def _cut(self, planned: Planned, instance: Instance) -> None:
        self._begins(planned, f"nothing passes between {instance.name} and the cluster", instance)
        self._doomed = self._stage.watch.members_of(instance.number)
        self._stage.ways.cut(instance.number)
        try:
            await trio.sleep(_SESSION_S)
            await self._expire_doomed()
            await trio.sleep(planned.length_s)
        finally:
            self._stage.ways.heal()
        self._ends(planned, f"{instance.name} reaches the cluster again", instance)

    async def _cut_leader(self, planned: Planned) -> None:
        node_id, why = await self._leader(planned)
        self._begins(planned, f"nothing passes between the instances and broker {node_id}: it {why}")
        self._stage.ways.cut_broker(node_id)
        try:
            await trio.sleep(planned.length_s)
        finally:
            self._stage.ways.heal()
        self._ends(planned, f"the instances reach broker {node_id} again")

    async def _lose(self, planned: Planned, rules: Sequence[FaultRule], text: str) -> None:
        self._begins(planned, text)
        added = self._stage.ways.add(rules)
        try:
            await trio.sleep(planned.length_s)
        finally:
            met = self._stage.ways.remove(added)
        self._ends(planned, f"messages pass again; {met} were met")

    # ---- brokers

    async def _strike_broker(self, planned: Planned) -> None:
        assert self._stage.cluster is not None, "faults of brokers need a cluster of ours"
        local = self._stage.cluster.local
        ask = self._coordinator if planned.fault is Fault.KILL_COORDINATOR else self._leader
        node_id, why = await ask(planned)
        name = f"broker-{node_id}"
        if planned.fault is Fault.PAUSE_LEADER:
            self._begins(planned, f"{name} is paused: it {why}")
            await _in_thread(lambda: local.pause(name))
            await trio.sleep(planned.length_s)
            await _in_thread(lambda: local.resume(name))
        else:
            self._begins(planned, f"kill -9 of {name}: it {why}")
            await _in_thread(lambda: local.kill(name))
            await trio.sleep(planned.length_s)
            await _in_thread(lambda: local.start(name))
        await self._in_sync()
        self._ends(planned, f"{name} is back")

    async def _coordinator(self, _planned: Planned) -> tuple[int, str]:
        """The id of the coordinator, and its role. Raises `ClusterError` if it is not known now."""
        described = self._stage.watch.described
        if described is None or described.coordinator is None:
            raise ClusterError("the coordinator of the group is not known")
        return described.coordinator.node_id, "coordinates the group"

    async def _leader(self, planned: Planned) -> tuple[int, str]:
        """The id of a leader, and its role. Raises `ClusterError` if there is none now."""
        stage = self._stage
        topics = await stage.admin.describe_topics(list(stage.topics))
        led = [(name, it) for name in stage.topics for it in topics[name].partitions if it.leader is not None]
        if not led:
            raise ClusterError("no partition has a leader")
        name, partition = led[planned.choose(len(led))]
        assert partition.leader is not None
        return partition.leader, f"leads {name}-{partition.partition}"

    async def _in_sync(self) -> None:
        """Waits until all replicas are in sync, or for a while."""
        with trio.move_on_after(_IN_SYNC_S):
            while True:
                try:
                    topics = await self._stage.admin.describe_topics(list(self._stage.topics))
                    if all(len(it.isr) == len(it.replicas) for each in topics.values() for it in each.partitions):
                        return
                except KafkaError:
                    pass  # it is asked again
                await trio.sleep(_LOOK_S)

    # ---- the journal

    def _begins(self, planned: Planned, text: str, instance: Instance | None = None) -> None:
        self.struck[planned.fault] = self.struck.get(planned.fault, 0) + 1
        name = None if instance is None else instance.name
        self._journal.add(Event(time.time(), What.FAULT, text, name, fault=planned.number))

    def _ends(self, planned: Planned, text: str, instance: Instance | None = None) -> None:
        name = None if instance is None else instance.name
        self._journal.add(Event(time.time(), What.REPAIR, text, name, fault=planned.number))

    def _note(self, text: str, planned: Planned) -> None:
        self._journal.add(Event(time.time(), What.NOTE, text))
        if any(it.fault == planned.number and it.what is What.FAULT for it in self._journal.events):
            self._ends(planned, "the fault is over")


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)
