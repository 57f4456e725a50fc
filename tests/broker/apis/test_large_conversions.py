"""A cluster converts a large group whose members work on; its coordinator is killed in the middle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from barnabas.broker.groups import conversions, downgrades, upgrades
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.machine import GroupMachine
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.runtime.channel import ChannelError
from tests.broker.apis.classic_members import ClassicConsumer, coordinator
from tests.broker.apis.rig import Rig, on_cluster

pytestmark = pytest.mark.feature("CG-16")

GROUP, TOPIC = "readers", "news"
MEMBERS = 24
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)

on_three_brokers = on_cluster(
    brokers=3,
    offsets__topic__num__partitions="1",
    group__consumer__assignment__interval__ms="0",
    group__initial__rebalance__delay__ms="500",
    group__min__session__timeout__ms="1000",
)


@pytest.fixture(autouse=True)
def two_dozen_members_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (upgrades, downgrades, conversions):
        monkeypatch.setattr(module, "AT_ONCE_ITEMS", 100)
    monkeypatch.setattr(upgrades, "TURN_ITEMS", 30)
    monkeypatch.setattr(downgrades, "MEMBERS_IN_A_TURN", 3)


class Readers:
    """A group of classic consumers, and one consumer with the new protocol."""

    def __init__(self, rig: Rig, nursery: trio.Nursery) -> None:
        self.rig = rig
        self.nursery = nursery
        self.committed: dict[int, int] = {}
        """The highest offset of each partition whose commit was acknowledged."""
        self.consumers = [ClassicConsumer(rig, GROUP, TOPIC, MEMBERS, self.committed) for _ in range(MEMBERS)]
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    async def start(self) -> None:
        for consumer in self.consumers:
            self.nursery.start_soon(consumer.live)
        await self.rig.until(lambda: len(self.committed) == MEMBERS)

    async def machine(self) -> GroupMachine:
        (shard,) = self.rig.broker(await coordinator(self.rig, GROUP)).groups.shards
        return shard.machine

    async def kind(self) -> type:
        return type((await self.machine()).groups.get(GROUP))

    async def join(self) -> None:
        """The one with the new protocol joins, and works on."""
        await self._beat(epoch=0)
        self.nursery.start_soon(self._live)

    async def _live(self) -> None:
        while self.epoch >= 0:
            await trio.sleep(1)
            if self.epoch >= 0:
                await self._beat(self.epoch)

    async def leave(self) -> None:
        self.epoch = -1
        await self._beat(-1)

    async def _beat(self, epoch: int) -> None:
        """It gives up at once what it is not assigned any more."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id="new", member_epoch=epoch, topic_partitions=self.owned
        )
        if epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 10_000, [TOPIC]
        while True:
            try:
                answer = await self.rig.ask(await coordinator(self.rig, GROUP), request, 1)
            except ChannelError:
                await trio.sleep(0.1)
                continue
            if answer.error_code not in RETRIED:
                break
            await trio.sleep(0.1)
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions

    async def kill_coordinator(self, begin: Callable[[], Awaitable[None]], after_turns: int) -> None:
        """Kill it that many turns, of a millisecond each, after the beginning of the conversion that `begin` asks for.
        """
        node = await coordinator(self.rig, GROUP)
        groups = (await self.machine()).groups
        self.nursery.start_soon(begin)
        while not groups.is_frozen(GROUP):
            await trio.sleep(0.0005)
        await trio.sleep(after_turns / 1000)
        self.rig.cluster.kill(self.rig.name(node))

    async def check_offsets(self) -> None:
        """No committed offset is lost."""
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(MEMBERS)))]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
        acknowledged = dict(self.committed)
        answer = await self.rig.ask(await coordinator(self.rig, GROUP), request, 9)
        (topic,) = answer.groups[0].topics
        found = {it.partition_index: it.committed_offset for it in topic.partitions}
        lost = {number: offset for number, offset in acknowledged.items() if found[number] < offset}
        assert len(acknowledged) == MEMBERS and not lost

    def are_at_work(self) -> bool:
        return all(consumer.generation >= 0 for consumer in self.consumers) and len(
            {number for consumer in self.consumers for number in consumer.owned}
        ) >= MEMBERS - 1


@on_three_brokers
async def test_members_work_on_while_their_group_is_converted_there_and_back(rig: Rig) -> None:
    await rig.create(TOPIC, MEMBERS, replicas=3)
    async with trio.open_nursery() as nursery:
        readers = Readers(rig, nursery)
        await readers.start()
        await readers.join()
        assert await readers.kind() is ConsumerGroup
        await trio.sleep(10)
        await readers.leave()
        await trio.sleep(10)
        assert await readers.kind() is ClassicGroup
        await rig.until(readers.are_at_work)
        await readers.check_offsets()
        assert [consumer.refused for consumer in readers.consumers] == [[]] * MEMBERS
        assert sum(consumer.restarts for consumer in readers.consumers) == 0, "nobody was unknown"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("after_turns", [1, 4, 7])
@on_three_brokers
async def test_the_coordinator_is_killed_during_an_upgrade(rig: Rig, after_turns: int) -> None:
    await rig.create(TOPIC, MEMBERS, replicas=3)
    async with trio.open_nursery() as nursery:
        readers = Readers(rig, nursery)
        await readers.start()
        await readers.kill_coordinator(readers.join, after_turns)
        await rig.until(lambda: readers.epoch > 0)
        await trio.sleep(15)
        await rig.until(readers.are_at_work)
        await readers.check_offsets()
        group = (await readers.machine()).groups.get(GROUP)
        assert isinstance(group, ConsumerGroup)
        assert group.members.keys() == {"new", *(consumer.member_id for consumer in readers.consumers)}
        assert sum(consumer.restarts for consumer in readers.consumers) > 0, "some were not written"
        assert [consumer.refused for consumer in readers.consumers] == [[]] * MEMBERS
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("after_turns", [1, 5, 9])
@on_three_brokers
async def test_the_coordinator_is_killed_during_a_downgrade(rig: Rig, after_turns: int) -> None:
    await rig.create(TOPIC, MEMBERS, replicas=3)
    async with trio.open_nursery() as nursery:
        readers = Readers(rig, nursery)
        await readers.start()
        await readers.join()
        await trio.sleep(10)
        await readers.kill_coordinator(readers.leave, after_turns)
        await trio.sleep(25)
        await rig.until(readers.are_at_work)
        await readers.check_offsets()
        group = (await readers.machine()).groups.get(GROUP)
        assert isinstance(group, ClassicGroup | ConsumerGroup)
        assert group.members.keys() == {consumer.member_id for consumer in readers.consumers}
        assert sum(consumer.restarts for consumer in readers.consumers) > 0, "some had been removed"
        assert [consumer.refused for consumer in readers.consumers] == [[]] * MEMBERS
        nursery.cancel_scope.cancel()
