"""Members of one group: they read all records, commit now and then, leave, and are killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.consumer.settings import ConsumerOptions
from barnabas.client.groups.consumer_member import ConsumerMember
from barnabas.client.groups.participant import Participant
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.world import World
from simulation.clients import CLIENT_SETTINGS, Mortals, chance_of_life
from simulation.findings import Findings
from simulation.invariants.groups import SESSION_PART, GroupPartition, GroupPromises
from simulation.invariants.partitions import PartitionPromises
from simulation.invariants.places import PartitionKey
from simulation.swarm import GroupPlan

POLL_MS = 1_000
FETCH_WAIT_MS = 2_000
"""Most of what readers ask is answered because there is something; the rest of it costs for nothing."""


@dataclass(slots=True)
class GroupPart:
    """State that all members of a group share in a run."""

    cluster: SimulatedCluster
    plan: GroupPlan
    findings: Findings
    partitions: PartitionPromises
    promises: GroupPromises
    keys: Sequence[PartitionKey]
    """All partitions that the group reads."""

    def place(self, partition: TopicPartition) -> GroupPartition:
        return GroupPartition(self.plan.group_id, PartitionKey(*partition))

    def options(self, client: str, chance: Stream) -> ConsumerOptions:
        """Consumer options for one life of a member."""
        plan = self.plan
        protocol = chance.choice(("classic", "consumer")) if plan.protocol == "mixed" else plan.protocol
        options = ConsumerOptions(
            bootstrap_servers=[f"{host}:{port}" for host, port in self.cluster.bootstrap],
            request_timeout_ms=CLIENT_SETTINGS.request_timeout_ms,
            retry_backoff_ms=CLIENT_SETTINGS.retry_backoff_ms,
            socket_connection_setup_timeout_ms=CLIENT_SETTINGS.socket_connection_setup_timeout_ms,
            default_api_timeout_ms=plan.api_timeout_ms,
            group_id=plan.group_id,
            group_instance_id=client if plan.static else None,
            group_protocol=protocol,
            max_poll_interval_ms=plan.max_poll_interval_ms,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        if protocol == "classic":
            options["session_timeout_ms"] = plan.session_timeout_ms
            options["heartbeat_interval_ms"] = plan.session_timeout_ms // 4
            options["partition_assignment_strategy"] = plan.assignors or ("range",)
        return options

    def may_end_a_life(self, client: str, membership: Participant, code: ErrorCode) -> bool:
        """Whether the member may get this error, after which it has to rejoin from the beginning."""
        if code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            # Its predecessor is missed only when its session ends; its successor fences it.
            return self.plan.static
        if code is ErrorCode.GROUP_ID_NOT_FOUND and isinstance(membership.member, ConsumerMember):
            return self.plan.protocol == "mixed" and self.promises.may_miss_its_group(
                client, self.plan.session_timeout_ms
            )
        return False

    def not_settled(self) -> str:
        """One owner for each partition, and everything read and committed."""
        for key in self.keys:
            place = GroupPartition(self.plan.group_id, key)
            owners, end = self.promises.owners(place), self.partitions.ghost(key).end_offset
            # A member that reads only to transform commits nothing in an empty partition.
            committed = max(self.promises.known_offset(place), 0)
            if len(owners) != 1:
                return f"{place} is owned by {owners}"
            if committed < end:
                return f"{place}: {committed} of {end} are committed, {owners[0]} has it"
        return ""


@dataclass(slots=True)
class GroupMember:
    """One life of a member: what it is given is held to what it was given before, and to what is committed."""

    part: GroupPart
    client: str
    consumer: Consumer
    _expected: dict[TopicPartition, int] = field(default_factory=dict)
    """Next offsets to read, as far as they are known."""
    _fresh: dict[TopicPartition, None] = field(default_factory=dict)
    """Taken on, and where the group has come to is not known yet."""
    _polled_at: float = field(default_factory=trio.current_time)

    def subscribe(self) -> None:
        topics = dict.fromkeys(key.topic for key in self.part.keys)
        self.consumer.subscribe(topics, listener=RebalanceListener(self._assigned, self._gone, self._gone))

    def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        part, membership = self.part, self.consumer.membership
        assert membership is not None
        part.cluster.universe.trace(f"{self.client} has {' '.join(map(str, partitions))} by {membership!r}")
        generation = self.consumer.group_metadata().generation_or_epoch
        if part.plan.protocol == "mixed":
            # An empty group that changes its protocol starts again at the same generation.
            generation = -1
        for partition in partitions:
            session_ms = part.plan.session_timeout_ms
            part.promises.takes_on_in(generation, part.place(partition), self.client)
            part.promises.takes_on(part.place(partition), self.client, self._unheard_ms, session_ms)
            self._expected.pop(partition, None)
            self._fresh[partition] = None
            part.findings.count("partitions taken on")

    def _gone(self, partitions: Sequence[TopicPartition]) -> None:
        self.part.cluster.universe.trace(f"{self.client} gives up {' '.join(map(str, partitions))}")
        for partition in partitions:
            self.part.promises.gives_up(self.part.place(partition), self.client)
            self._fresh.pop(partition, None)

    def _unheard_ms(self) -> int:
        """A member that has not polled for max.poll.interval.ms leaves the group, and learns of it at its next poll."""
        membership = self.consumer.membership
        asleep_ms = (trio.current_time() - self._polled_at) * 1000.0
        if membership is None or asleep_ms > self.part.plan.max_poll_interval_ms * SESSION_PART:
            return self.part.plan.session_timeout_ms
        return self.part.promises.unheard_ms(self.client)

    async def poll(self) -> list[ConsumerRecord]:
        """Raises as `Consumer.poll`."""
        self._expected = {partition: place.offset for partition, place in self.consumer.positions().items()}
        self._polled_at = trio.current_time()
        records = await self.consumer.poll(POLL_MS)
        self._begin(records)
        for record in records:
            self._check(record)
        return records

    def is_put_out(self, error: KafkaError) -> bool:
        """True: what `poll` raised has ended this life."""
        part, membership = self.part, self.consumer.membership
        part.findings.count(f"poll: {error.code.name}")
        if membership is None or membership.fatal is None:
            return False
        if not part.may_end_a_life(self.client, membership, error.code):
            part.findings.report(f"{self.client} is out of its group for ever: {error}")
        return True

    def _begin(self, records: Sequence[ConsumerRecord]) -> None:
        """The positions are where the group has come to, or the beginning if that is nowhere."""
        starts = {partition: place.offset for partition, place in self.consumer.positions().items()}
        starts |= {TopicPartition(each.topic, each.partition): each.offset for each in reversed(records)}
        for partition in [partition for partition in self._fresh if partition in starts]:
            del self._fresh[partition]
            self.part.promises.begins_at(self.part.place(partition), self.client, starts[partition])

    def _check(self, record: ConsumerRecord) -> None:
        """It is what is committed there, and none is missing before it."""
        key = PartitionKey(record.topic, record.partition)
        self.part.partitions.consumed(key, record.offset, record.value)
        expected = self._expected.get(TopicPartition(*key))
        if expected is not None and record.offset != expected:
            self.part.findings.report(f"{key}: a member at {expected} was given {record.offset}")
        self._expected[TopicPartition(*key)] = record.offset + 1


@dataclass(slots=True)
class Readers:
    """A group that only reads."""

    part: GroupPart
    mortals: Mortals

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
        chance = chance_of_life(part.cluster, client)
        leaves_at = trio.current_time() + chance.expovariate(1.0 / part.plan.mean_stay_seconds)
        async with Consumer(world=world, **part.options(client, chance)) as consumer:
            member = GroupMember(part, client, consumer)
            member.subscribe()
            while not self.mortals.stop.is_set() and (self.mortals.calm.is_set() or trio.current_time() < leaves_at):
                if not await self._step(member, chance):
                    return
        part.findings.count("members that left")

    async def _step(self, member: GroupMember, chance: Stream) -> bool:
        """False if this life is over."""
        try:
            await member.poll()
        except KafkaError as error:
            if member.is_put_out(error):
                return False
            await trio.sleep(0.5)
            return True
        await trio.sleep(chance.uniform(0.0, 2.0))
        if chance.random() < 0.6:
            await self._commit(member)
        return True

    async def _commit(self, member: GroupMember) -> None:
        part, places = self.part, member.consumer.positions()
        for partition, place in places.items():
            part.promises.commits(part.place(partition), member.client, place.offset)
        try:
            await member.consumer.commit(places)
        except KafkaError as error:
            part.findings.count(f"commit: {error.code.name}")
            return
        part.findings.count("commits")
        for partition, place in places.items():
            part.promises.committed(part.place(partition), place.offset)
