"""New partitions: they are announced at once, and requests for them wait for their logs, which are created in a worker
thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from tests.broker.apis.rig import Rig, batch_of, on_cluster, produce_request, values_in


@asynccontextmanager
async def slow_disk(rig: Rig, node: int) -> AsyncIterator[None]:
    """The logs that this broker wants to make are not made before the end."""
    async with rig.broker(node).store.making:
        yield


async def create(rig: Rig, name: str, node: int, partitions: int = 1) -> bytes:
    """On broker 1; gives the id once the controller has decided, whether or not anybody knows."""
    assignments = [CreatableReplicaAssignment(partition_index=it, broker_ids=[1]) for it in range(partitions)]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    response = await rig.ask(node, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert response.topics[0].error_code == 0
    return bytes(response.topics[0].topic_id)


async def create_over(channel: Channel, name: str, partitions: int) -> None:
    """On broker 1, over a connection of its own: requests of one connection are forwarded one after the other."""
    assignments = [CreatableReplicaAssignment(partition_index=it, broker_ids=[1]) for it in range(partitions)]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    response = await channel.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), timeout_ms=60_000)
    assert response.topics[0].error_code == 0


async def delete(rig: Rig, name: str, node: int) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    assert (await rig.ask(node, request)).responses[0].error_code == 0


def metadata(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


def end_of(name: str) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])])


def first_record_of(topic: str | bytes, replica_id: int = -1) -> FetchRequest:
    """By name or by id; without waiting for it."""
    fetch = FetchTopic(partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)])
    if isinstance(topic, str):
        fetch.topic = topic
    else:
        fetch.topic_id = topic
    state = ReplicaState(replica_id=replica_id)
    return FetchRequest(replica_state=state, max_wait_ms=0, max_bytes=1_000, topics=[fetch])


class Asked:
    """Requests that are under way, each over a connection of its own."""

    def __init__(self, rig: Rig, nursery: trio.Nursery) -> None:
        self._rig = rig
        self._nursery = nursery
        self.answers: dict[str, Any] = {}

    def ask(self, name: str, request: Message, version: int) -> None:
        async def run() -> None:
            self.answers[name] = await self._rig.channel(1).call(request, timeout_ms=60_000, version=version)

        self._nursery.start_soon(run)


@pytest.mark.feature("MB-06", "MB-08")
@on_cluster(brokers=3)
async def test_a_topic_is_announced_at_once_and_requests_wait_for_its_logs(rig: Rig) -> None:
    old = await rig.create("old", replicas=[1])
    async with trio.open_nursery() as nursery:
        asked = Asked(rig, nursery)
        async with slow_disk(rig, 1):
            new = await create(rig, "new", node=2)
            await rig.until(lambda: rig.broker(1).publisher.is_bringing("new"))
            (topic,) = (await rig.ask(1, metadata("new"), 12)).topics
            assert (topic.error_code, topic.partitions[0].leader_id) == (0, 1)
            everything = await rig.ask(1, MetadataRequest(topics=None), 12)
            assert [topic.name for topic in everything.topics] == ["new", "old"]
            asked.ask("produce", produce_request("new", batch_of("first"), 0, -1, 5000), 12)
            asked.ask("end", end_of("new"), 7)
            asked.ask("fetch", first_record_of(new), 17)
            asked.ask("fetch by name", first_record_of("new"), 12)
            await trio.sleep(2)
            assert asked.answers == {}
            # Nobody else waits, and no follower.
            assert (await rig.produce("old", node=1)).error_code == 0
            assert (await rig.ask(1, first_record_of(old), 17)).responses[0].partitions[0].error_code == 0
            (partition,) = (await rig.ask(1, first_record_of(new, replica_id=2), 17)).responses[0].partitions
            assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            unknown = (await rig.ask(1, metadata("nothing"), 12)).topics[0]
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await rig.until(lambda: len(asked.answers) == 4)
    assert asked.answers["produce"].responses[0].partition_responses[0].error_code == 0
    assert asked.answers["end"].topics[0].partitions[0].error_code == 0
    for way in ("fetch", "fetch by name"):
        assert asked.answers[way].responses[0].partitions[0].error_code == 0
    assert values_in(await rig.fetch("new", node=1)) == ["first"]


@pytest.mark.feature("MB-06")
@on_cluster(brokers=3)
async def test_later_changes_wait_their_turn(rig: Rig) -> None:
    await rig.create("t", replicas=[1])
    async with slow_disk(rig, 1):
        before = rig.broker(1).lifecycle.metadata_offset()
        await create(rig, "new", node=2)
        await rig.until(lambda: rig.broker(1).publisher.is_bringing("new"))
        await delete(rig, "t", node=2)
        await rig.until(lambda: "t" not in rig.broker(1).metadata.image.topics.by_name)
        await trio.sleep(1)
        assert (await rig.produce("t", node=1)).error_code == 0, "its end has not come here yet"
        assert rig.broker(1).lifecycle.metadata_offset() == before, "and the controller does not count it as applied"
        assert rig.broker(2).lifecycle.metadata_offset() > before
    await rig.until(lambda: rig.broker(1).partitions.find("t", 0) is None)
    assert (await rig.produce("t", node=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await rig.produce("new", node=1)).error_code == 0
    ahead = rig.broker(1).lifecycle.metadata_offset
    await rig.until(lambda: ahead() == rig.broker(2).lifecycle.metadata_offset())


@pytest.mark.feature("MB-06")
@on_cluster()
async def test_a_topic_of_many_partitions_comes_and_goes_in_short_steps(rig: Rig) -> None:
    broker, many = rig.broker(1), 300
    seen: list[int] = []

    class Watch(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            seen.append(len(broker.partitions))

    trio.lowlevel.add_instrument(Watch())
    await create(rig, "wide", 1, partitions=many)
    await rig.until(lambda: len(broker.partitions) > 0)
    last = await rig.ask(1, produce_request("wide", batch_of("first"), many - 1, -1, 5000), 12)
    assert last.responses[0].partition_responses[0].error_code == 0, "it waits until all of the step is there"
    assert len(broker.partitions) == many
    await delete(rig, "wide", 1)
    await rig.until(lambda: not len(broker.partitions))
    assert max(abs(later - earlier) for earlier, later in pairwise(seen)) < many / 8


@pytest.mark.feature("MB-06", "ST-10")
@on_cluster(brokers=3, log__dirs="a,b", metadata__log__dir="a")
async def test_a_topic_whose_disk_fails_before_its_logs_are_there(rig: Rig) -> None:
    """The topic was announced already; waiting requests get the error of the disk."""
    await rig.create("old", replicas=[1])
    async with trio.open_nursery() as nursery:
        asked = Asked(rig, nursery)
        async with slow_disk(rig, 1):
            new = await create(rig, "new", node=2, partitions=2)
            await rig.until(lambda: rig.broker(1).publisher.is_bringing("new"))
            asked.ask("produce", produce_request("new", batch_of("first"), 0, 1, 5000), 12)
            asked.ask("fetch", first_record_of(new), 17)
            await trio.sleep(1)
            assert asked.answers == {}
            rig.universe.disk("broker-1").fail("write", "sync", prefix="b/")
        await rig.until(lambda: len(asked.answers) == 2)
    store = rig.broker(1).store
    assert [each.path for each in store.directories.online] == ["a"]
    there = ("new", 0) in store.directories.logs
    assert there != (("new", 1) in store.directories.logs), "one was to be made on each disk"
    produced = asked.answers["produce"].responses[0].partition_responses[0]
    fetched = asked.answers["fetch"].responses[0].partitions[0]
    for answer in (produced, fetched):
        assert answer.error_code == (0 if there else ErrorCode.KAFKA_STORAGE_ERROR)
    assert (await rig.produce("old", node=1)).error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.feature("MB-08", "ST-19")
@on_cluster(brokers=3)
async def test_deleted_and_made_again_before_the_first_logs_are_there(rig: Rig) -> None:
    async with slow_disk(rig, 1):
        first = await create(rig, "t", node=2, partitions=3)
        await rig.until(lambda: rig.broker(1).publisher.is_bringing("t"))
        await delete(rig, "t", node=2)
        second = await create(rig, "t", node=2, partitions=2)
        assert first != second
        await rig.until(lambda: second in rig.broker(2).metadata.image.topics.by_id)
    await rig.until(lambda: rig.broker(1).partitions.find(second, 1) is not None)
    broker = rig.broker(1)
    assert broker.partitions.find(first, 0) is None
    assert sorted(broker.store.directories.logs) == [("t", 0), ("t", 1)]
    assert {log.topic_id for log in broker.store.directories.logs.values()} == {second}
    for index in range(2):
        assert (await rig.produce("t", batch_of(f"{index}"), index=index)).error_code == 0
    rig.cluster.power_cut("broker-1")
    await trio.sleep(1)
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    assert {log.topic_id for log in rig.broker(1).store.directories.logs.values()} == {second}


@pytest.mark.feature("MB-08")
@on_cluster(brokers=3)
async def test_a_topic_whose_name_was_taken_before(rig: Rig) -> None:
    """One step of the metadata, as a snapshot is, takes a topic away and brings another of the same name."""
    old = await rig.create("t", replicas=[1])
    await rig.produce("t", batch_of("old"))
    broker = rig.broker(1)
    before = broker.metadata.image
    await delete(rig, "t", node=2)
    new = await create(rig, "t", node=2)
    await rig.until(lambda: rig.broker(1).partitions.find(new, 0) is not None)
    assert broker.partitions.find(old, 0) is None and old in before.topics.by_id
    assert values_in(await rig.fetch("t", node=1)) == []


@pytest.mark.feature("MB-05", "ST-10")
@pytest.mark.parametrize("way", ["stop", "kill", "power_cut"])
@on_cluster(brokers=3)
async def test_the_end_of_a_broker_that_is_making_logs(rig: Rig, way: str) -> None:
    await rig.create("t", replicas=[1])
    await rig.produce("t", batch_of("kept"))
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(create_over, rig.channel(2), f"new-{number}", 3)
        await rig.until(lambda: rig.broker(1).publisher.behind is not None)
        if way == "stop":
            await rig.cluster.stop("broker-1")
        elif way == "kill":
            rig.cluster.kill("broker-1")
        else:
            rig.cluster.power_cut("broker-1")
    await trio.sleep(1)
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    with suppress(ChannelError):
        await rig.ask(1, metadata("t"))  # the old connection does not know yet
    for number in range(20):
        for index in range(3):
            answer = await rig.produce(f"new-{number}", index=index)
            assert (answer.error_code, answer.base_offset) == (0, 0)
    ends = {log.log_end_offset for key, log in rig.broker(1).store.directories.logs.items() if key[0] != "t"}
    assert ends == {1}
    if way != "power_cut":
        assert values_in(await rig.fetch("t")) == ["kept"]


@pytest.mark.feature("MB-08")
@on_cluster(brokers=3)
async def test_more_partitions_of_a_topic_that_is_there(rig: Rig) -> None:
    await rig.create("t", replicas=[1])
    async with trio.open_nursery() as nursery:
        asked = Asked(rig, nursery)
        async with slow_disk(rig, 1):
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=30_000
            )
            assert (await rig.ask(2, request)).results[0].error_code == 0
            await rig.until(lambda: rig.placed(2, "t", 0).leader == 1)
            await trio.sleep(1)
            (topic,) = (await rig.ask(1, metadata("t"), 12)).topics
            assert len(topic.partitions) == 3
            is_bringing = rig.broker(1).publisher.is_bringing("t")
            asked.ask("end", end_of("t"), 7)
            await trio.sleep(1)
            assert bool(asked.answers) != is_bringing
        await rig.until(lambda: asked.answers)
    for index in range(3):
        assert (await rig.produce("t", index=index)).error_code == 0
