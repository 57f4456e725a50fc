"""Our consumer in groups of both kinds, alone and beside librdkafka, on our cluster and on Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from barnabas.client.cluster import TopicPartition
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.consumer.settings import ConsumerOptions
from barnabas.client.offsets import OffsetAndMetadata
from tests.compat.client.any_cluster import AnyCluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer as ForeignConsumer
    from confluent_kafka import TopicPartition as ForeignPartition

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.feature("CL-03")
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def options(cluster: AnyCluster, group_id: str, protocol: str = "classic", **more: Any) -> ConsumerOptions:
    chosen: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group_id, **more}
    if protocol == "classic":
        chosen |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300}
    chosen = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, "group_protocol": protocol, **chosen}
    return cast(ConsumerOptions, chosen)


async def write(cluster: AnyCluster, topic: str, *values: str, partition: int = 0) -> None:
    def produce() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for value in values:
            producer.produce(topic, value.encode(), key=b"k", partition=partition)
        assert producer.flush(10) == 0

    await trio.to_thread.run_sync(produce)


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    with trio.fail_after(20):
        while len(records) < count:
            records += await consumer.poll(500)
    return records


@PROTOCOLS
@pytest.mark.feature("CG-13", "CG-21")
async def test_members_come_and_go_and_offsets_stay(any_cluster: AnyCluster, protocol: str) -> None:
    topic, group_id = any_cluster.create_topic("shared", 2), any_cluster.new_name("group")
    parts = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for partition in (0, 1):
        await write(any_cluster, topic, "a", "b", "c", partition=partition)
    callbacks: list[tuple[str, int]] = []
    listener = RebalanceListener(
        lambda partitions: callbacks.append(("assigned", len(partitions))),
        lambda partitions: callbacks.append(("revoked", len(partitions))),
    )
    async with Consumer(**options(any_cluster, group_id, protocol, enable_auto_commit=False)) as first:
        first.subscribe([topic], listener=listener)
        assert len(await read(first, 6)) == 6
        await first.commit({parts[0]: 2, parts[1]: OffsetAndMetadata(3, metadata="all of it")})
        assert (await first.committed(parts))[parts[1]] == OffsetAndMetadata(3, None, "all of it")
        async with Consumer(topic, **options(any_cluster, group_id, protocol, enable_auto_commit=False)) as second:
            with trio.fail_after(20):
                while len(first.assignment()) != 1 or len(second.assignment()) != 1:
                    await first.poll(50)
                    await second.poll(50)
            assert first.assignment() != second.assignment()
        with trio.fail_after(20):
            while len(first.assignment()) != 2:
                await first.poll(50)
    assert callbacks[0] == ("assigned", 2) and callbacks[-1] == ("revoked", 2)
    async with Consumer(topic, **options(any_cluster, group_id, protocol)) as third:
        [record] = await read(third, 1)
        assert (record.partition, record.offset, record.value, record.key) == (0, 2, b"c", b"k")
    async with Consumer(topic, **options(any_cluster, group_id, protocol)) as fourth:
        with trio.fail_after(20):
            while not fourth.assignment():
                await fourth.poll(50)
        assert await fourth.position(parts[0]) == 3


@asynccontextmanager
async def foreign_member(
    cluster: AnyCluster, topic: str, settings: dict[str, Any]
) -> AsyncIterator[dict[tuple[str, int], None]]:
    """A member that polls in a thread of its own; gives what it is assigned."""
    assigned: dict[tuple[str, int], None] = {}
    stop = False

    def took(consumer: ForeignConsumer, partitions: list[ForeignPartition]) -> None:
        assigned.update(((each.topic, each.partition), None) for each in partitions)

    def gave(consumer: ForeignConsumer, partitions: list[ForeignPartition]) -> None:
        for each in partitions:
            assigned.pop((each.topic, each.partition), None)

    def live() -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest", **settings}
        )
        consumer.subscribe([topic], on_assign=took, on_revoke=gave, on_lost=gave)
        while not stop:
            consumer.poll(0.05)
        consumer.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, live)
        try:
            yield assigned
        finally:
            stop = True


@pytest.mark.feature("CG-07", "CG-11")
@pytest.mark.parametrize(
    ("strategy", "who_leads"),
    [("range", "theirs"), ("cooperative-sticky", "ours"), ("cooperative-sticky", "theirs"), ("consumer", "ours")],
)
async def test_a_group_with_members_of_librdkafka(any_cluster: AnyCluster, strategy: str, who_leads: str) -> None:
    topic, group_id = any_cluster.create_topic("mixed", 4), any_cluster.new_name("mixed")
    theirs: dict[str, Any] = {"group.id": group_id}
    if strategy == "consumer":
        theirs["group.protocol"] = "consumer"
        ours = options(any_cluster, group_id, "consumer")
    else:
        theirs |= {"partition.assignment.strategy": strategy, "session.timeout.ms": 6_000}
        theirs["heartbeat.interval.ms"] = 300
        ours = options(any_cluster, group_id, partition_assignment_strategy=strategy)

    async def settled(mine: Consumer, other: Mapping[tuple[str, int], None]) -> None:
        with trio.fail_after(25):
            while len(mine.assignment()) != 2 or len(other) != 2:
                await mine.poll(50)
        assert not set(other) & set(mine.assignment())

    if who_leads == "ours":
        async with Consumer(topic, **ours) as mine:
            with trio.fail_after(20):
                while len(mine.assignment()) != 4:
                    await mine.poll(50)
            async with foreign_member(any_cluster, topic, theirs) as other:
                await settled(mine, other)
        return
    async with foreign_member(any_cluster, topic, theirs) as other:
        with trio.fail_after(20):
            while len(other) != 4:
                await trio.sleep(0.05)
        async with Consumer(topic, **ours) as mine:
            await settled(mine, other)


@pytest.mark.feature("CG-15")
@pytest.mark.parametrize("kind", ["classic", "broker", "client"])
async def test_a_pattern(any_cluster: AnyCluster, kind: str) -> None:
    topic, other = any_cluster.create_topic("pattern-yes"), any_cluster.create_topic("pattern-no")
    protocol = "classic" if kind == "classic" else "consumer"
    pattern = f"{topic[:-1]}[{topic[-1]}]"
    async with Consumer(**options(any_cluster, any_cluster.new_name("pattern"), protocol)) as consumer:
        consumer.subscribe(pattern=re.compile(pattern) if kind == "client" else pattern)
        await write(any_cluster, topic, "in")
        await write(any_cluster, other, "out")
        assert [record.value for record in await read(consumer, 1)] == [b"in"]
        assert consumer.subscription() == (topic,)


@PROTOCOLS
@pytest.mark.feature("CG-10")
async def test_a_static_member_comes_back_to_what_it_had(any_cluster: AnyCluster, protocol: str) -> None:
    topic, group_id = any_cluster.create_topic("static", 2), any_cluster.new_name("static")
    as_member = partial(options, any_cluster, group_id, protocol)
    async with Consumer(topic, **as_member(group_instance_id="one")) as one:
        async with Consumer(topic, **as_member(group_instance_id="two")) as two:
            with trio.fail_after(20):
                while len(one.assignment()) != 1 or len(two.assignment()) != 1:
                    await one.poll(50)
                    await two.poll(50)
            had, generation = two.assignment(), two.group_metadata().generation_or_epoch
        async with Consumer(topic, **as_member(group_instance_id="two")) as again:
            with trio.fail_after(20):
                while not again.assignment():
                    await one.poll(50)
                    await again.poll(50)
            assert again.assignment() == had
            assert len(one.assignment()) == 1
            assert again.group_metadata().generation_or_epoch == generation


async def test_iteration_auto_commit_and_deserializers(any_cluster: AnyCluster) -> None:
    topic, group_id = any_cluster.create_topic("iterated"), any_cluster.new_name("iterated")
    await write(any_cluster, topic, "1", "2", "3")
    with trio.fail_after(30):
        async with Consumer(topic, **options(any_cluster, group_id, value_deserializer="json")) as consumer:
            async for record in consumer:
                if record.value == 2:
                    break
        async with Consumer(topic, **options(any_cluster, group_id, key_deserializer="str")) as consumer:
            async for record in consumer:
                assert (record.offset, record.key, record.value) == (2, "k", b"3")
                break
