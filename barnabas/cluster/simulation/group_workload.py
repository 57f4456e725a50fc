"""Members of one group: they read all records, commit now and then, leave, and are killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer import FROM_EARLIEST, ConsumerRecord, Isolation, ReadingSettings
from barnabas.client.groups.group_consumer import GroupConsumer, RebalanceListener, open_group_consumer
from barnabas.client.groups.membership import GroupSettings
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.cluster.simulation.clients import Mortals
from barnabas.cluster.simulation.findings import Findings
from barnabas.cluster.simulation.invariants.groups import GroupPartition, GroupPromises
from barnabas.cluster.simulation.invariants.partitions import PartitionKey, PartitionPromises
from barnabas.cluster.simulation.swarm import GroupPlan
from protocol.errors import KafkaError
from runtime.simulated.chance import Stream
from runtime.world import World

POLL_MS = 1_000


@dataclass(slots=True)
class GroupPart:
    """What all members of a group share in a run."""

    cluster: SimulatedCluster
    plan: GroupPlan
    findings: Findings
    partitions: PartitionPromises
    promises: GroupPromises
    keys: Sequence[PartitionKey]
    """All partitions that the group reads."""

    def place(self, partition: TopicPartition) -> GroupPartition:
        return GroupPartition(self.plan.group_id, PartitionKey(*partition))

    def settings(self) -> GroupSettings:
        plan = self.plan
        return GroupSettings(
            plan.group_id,
            group_protocol=plan.protocol,
            session_timeout_ms=plan.session_timeout_ms,
            heartbeat_interval_ms=plan.session_timeout_ms // 4,
            max_poll_interval_ms=plan.max_poll_interval_ms,
            partition_assignors=plan.assignors or ("range",),
            default_api_timeout_ms=plan.api_timeout_ms,
        )

    def listener(self, client: str, consumer: Callable[[], GroupConsumer]) -> RebalanceListener:
        """Tells the promises who has what."""

        async def on_assigned(partitions: Sequence[TopicPartition]) -> None:
            me = consumer()
            self.cluster.universe.trace(f"{client} has {' '.join(map(str, partitions))} by {me.member!r}")
            for partition in partitions:
                self.promises.takes_on(self.place(partition), client, me.unheard_ms, self.plan.session_timeout_ms)
                # The positions are where the group has come to, or the beginning if that is nowhere.
                self.promises.begins_at(self.place(partition), client, me.position(partition))
                self.findings.count("partitions taken on")

        async def on_gone(partitions: Sequence[TopicPartition]) -> None:
            self.cluster.universe.trace(f"{client} gives up {' '.join(map(str, partitions))}")
            for partition in partitions:
                self.promises.gives_up(self.place(partition), client)

        return RebalanceListener(on_assigned, on_gone, on_gone)

    def not_settled(self) -> str:
        """One owner for each partition, and everything read and committed."""
        for key in self.keys:
            place = GroupPartition(self.plan.group_id, key)
            owners, end = self.promises.owners(place), self.partitions.ghost(key).end_offset
            acked = self.promises.acked_offset(place)
            if len(owners) != 1:
                return f"{place} is owned by {owners}"
            if acked < end:
                return f"{place}: {owners[0]} has committed {acked} of {end}"
        return ""


@dataclass(slots=True)
class Readers:
    """A group that only reads."""

    part: GroupPart
    mortals: Mortals
    _consumers: dict[str, GroupConsumer] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[str, ...]:
        plan = self.part.plan
        return tuple(f"{plan.group_id}-{index}" for index in range(plan.members))

    def not_settled(self) -> str:
        return self.part.not_settled()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for client in self.clients:
                gone = partial(self.part.promises.is_gone, client)
                nursery.start_soon(self.mortals.lives, client, "members", partial(self._live, client), gone)

    async def _live(self, client: str, world: World, cluster: Cluster) -> None:
        part = self.part
        chance = part.cluster.universe.stream(f"workload/{client}")
        leaves_at = trio.current_time() + chance.expovariate(1.0 / part.plan.mean_stay_seconds)
        listener = part.listener(client, lambda: self._consumers[client])
        reading = ReadingSettings(isolation=Isolation.READ_COMMITTED, fetch_max_wait_ms=POLL_MS, reset=FROM_EARLIEST)
        topics = list(dict.fromkeys(key.topic for key in part.keys))
        async with open_group_consumer(cluster, part.settings(), topics, reading, listener) as consumer:
            self._consumers[client] = consumer
            while not self.mortals.stop.is_set() and (self.mortals.calm.is_set() or trio.current_time() < leaves_at):
                await self._step(client, consumer, chance)
        part.findings.count("members that left")

    async def _step(self, client: str, consumer: GroupConsumer, chance: Stream) -> None:
        part = self.part
        positions = consumer.positions()
        try:
            records = await consumer.poll(POLL_MS)
        except KafkaError as error:
            if consumer.member.fatal is not None:
                part.findings.report(f"{client} is out of its group for ever: {error}")
            part.findings.count(f"poll: {error.code.name}")
            await trio.sleep(0.5)
            return
        check_consumed(part, positions, records)
        await trio.sleep(chance.uniform(0.0, 1.0))
        if chance.random() < 0.6:
            await self._commit(client, consumer)

    async def _commit(self, client: str, consumer: GroupConsumer) -> None:
        part, offsets = self.part, consumer.positions()
        for partition, offset in offsets.items():
            part.promises.commits(part.place(partition), client, offset)
        try:
            await consumer.commit(offsets)
        except KafkaError as error:
            part.findings.count(f"commit: {error.code.name}")
            return
        part.findings.count("commits")
        for partition, offset in offsets.items():
            part.promises.committed(part.place(partition), offset)


def check_consumed(part: GroupPart, positions: dict[TopicPartition, int], records: Sequence[ConsumerRecord]) -> None:
    """Each record is what is committed there, and none is missing before it."""
    for record in records:
        key = PartitionKey(record.topic, record.partition)
        part.partitions.consumed(key, record.offset, record.value)
        expected = positions.get(TopicPartition(*key))
        if expected is not None and record.offset != expected:
            part.findings.report(f"{key}: a member at {expected} was given {record.offset}")
        positions[TopicPartition(*key)] = record.offset + 1
