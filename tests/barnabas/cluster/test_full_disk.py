"""A disk without room, on whole clusters under virtual time: what it holds is led elsewhere until there is room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio

from barnabas.client.cluster import TopicPartition
from barnabas.client.consumer import ReadingSettings, open_reader
from barnabas.client.producer import Producer
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.runtime.simulated.store import Store
from barnabas.testing.simulated import SimulatedClusterForTests

pytestmark = pytest.mark.feature("OP-06")

SECONDS = 8.0
"""Within so many seconds acknowledged writes go on: 2 until a disk counts as full, and the pauses of clients."""
MUCH = 1 << 40
SAFE = {"min.insync.replicas": "2"}
Cluster = SimulatedClusterForTests


def play(story: Callable[[Cluster], Awaitable[None]], seed: int = 3) -> None:
    settings = {"leader.imbalance.check.interval.seconds": "20", **SAFE}
    cluster = Cluster(seed, settings)
    cluster.run(lambda: story(cluster))


class Writer:
    """Writes numbers one by one with acks=all, and keeps those that were acknowledged."""

    def __init__(self, cluster: Cluster, topic: str = "t") -> None:
        self._cluster, self._topic = cluster, topic
        self.acknowledged: list[bytes] = []
        self._next = 0

    async def run(self) -> None:
        async with Producer(
            bootstrap_servers=self._cluster.bootstrap_servers,
            world=self._cluster.world,
            request_timeout_ms=3_000,
            delivery_timeout_ms=600_000,
            retry_backoff_max_ms=200,
        ) as producer:
            while True:
                value = b"%d" % self._next + bytes(500)
                self._next += 1
                await producer.send(self._topic, value, partition=0)
                self.acknowledged.append(value)
                await trio.sleep(0.02)

    async def more(self, seconds: float = SECONDS) -> None:
        """Some more are acknowledged, in time."""
        wanted = len(self.acknowledged) + 5
        with trio.fail_after(seconds):
            while len(self.acknowledged) < wanted:
                await trio.sleep(0.05)


async def read_all(cluster: Cluster, count: int) -> list[bytes | None]:
    settings = ClientSettings.of({"bootstrap_servers": cluster.bootstrap_servers})
    values: list[bytes | None] = []
    async with open_cluster(settings, cluster.world) as view, open_reader(view, ReadingSettings()) as reader:
        reader.assign({TopicPartition("t", 0): 0})
        with trio.fail_after(60):
            while len(values) < count:
                values += [record.value for record in await reader.poll(500)]
    return values


@contextmanager
def full(store: Store) -> Iterator[None]:
    """Not a byte more fits."""
    store.capacity_bytes = store.used_bytes
    yield
    store.capacity_bytes = MUCH


def led_by(cluster: Cluster, name: str, seen_by: str) -> list[str]:
    """Partitions that broker `name` leads, by the metadata of broker `seen_by`."""
    services = cluster._cluster.nodes[seen_by].broker
    assert services is not None
    image = services.metadata.image
    return [
        f"{topic.name}-{index}"
        for topic in image.topics.by_name.values()
        for index, partition in topic.partitions.items()
        if f"broker-{partition.leader}" == name
    ]


def test_a_full_disk_hands_over_what_it_leads_and_takes_it_back_later() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create_topic("t")
        writer = Writer(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await writer.more()
            leader = await cluster.leader_of("t")
            others = [name for name in cluster.brokers if name != leader]
            with full(cluster.universe.disk(leader)):
                await writer.more()
                assert await cluster.leader_of("t", other_than=leader) in others
                await writer.more()
                await trio.sleep(60)
                await writer.more()
                assert [led_by(cluster, leader, other) for other in others] == [[], []], "preferred, but not elected"
                assert led_by(cluster, leader, seen_by=leader) == [], "it has read that it leads nothing any more"
            with trio.fail_after(120):
                while await cluster.leader_of("t") != leader:
                    await trio.sleep(1)
            await writer.more()
            nursery.cancel_scope.cancel()
        assert cluster._cluster.nodes[leader].is_up
        found = await read_all(cluster, len(writer.acknowledged))
        assert [value for value in writer.acknowledged if value not in found] == []

    play(story)


def test_writes_do_not_wait_for_a_follower_whose_disk_is_full() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create_topic("t")
        writer = Writer(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await writer.more()
            leader = await cluster.leader_of("t")
            follower = next(name for name in cluster.brokers if name != leader)
            with full(cluster.universe.disk(follower)):
                await trio.sleep(1)
                await writer.more()
                assert await cluster.leader_of("t") == leader
            await writer.more()
            nursery.cancel_scope.cancel()

    play(story)


def test_when_all_disks_are_full_everybody_stays_who_he_is_and_reads_go_on() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create_topic("t")
        writer = Writer(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await writer.more()
            stores = [cluster.universe.disk(name) for name in cluster.brokers]
            with full(stores[0]), full(stores[1]), full(stores[2]):
                await trio.sleep(30)
                count = len(writer.acknowledged)
                assert (await read_all(cluster, count))[:count] == writer.acknowledged[:count]
                assert await cluster.leader_of("t") in cluster.brokers
            await writer.more(30)
            nursery.cancel_scope.cancel()
        found = await read_all(cluster, len(writer.acknowledged))
        assert [value for value in writer.acknowledged if value not in found] == []

    play(story)


def test_a_controller_whose_disk_is_full_waits_while_others_decide() -> None:
    async def story(cluster: Cluster) -> None:
        active = await cluster.active_controller()
        store = cluster.universe.disk(active)
        with full(store):
            await trio.sleep(2)
            assert await cluster.active_controller() == active, "the reserve lasts for a while"
            store.capacity_bytes = store.used_bytes
            assert await cluster.active_controller(other_than=active) != active
            await cluster.create_topic("meanwhile")
            await trio.sleep(30)
        assert cluster._cluster.nodes[active].is_up
        await trio.sleep(5)
        for name in cluster.controllers:
            if name != active:
                cluster.kill(name)
                await trio.sleep(10)
                cluster.start(name)
                await cluster.wait_ready()
        await cluster.create_topic("later")

    play(story)


def test_a_topic_that_a_full_disk_cannot_take_is_there_when_there_is_room() -> None:
    async def story(cluster: Cluster) -> None:
        name = cluster.brokers[0]
        with full(cluster.universe.disk(name)):
            await cluster.create_topic("t")
            await trio.sleep(1)
        writer = Writer(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await writer.more()
            await trio.sleep(60)
            services = cluster._cluster.nodes[name].broker
            assert services is not None
            partition = services.partitions.find("t", 0)
            assert partition is not None and partition.log.log_end_offset > 0
            image = services.metadata.partition("t", 0)
            assert image is not None and len(image.isr) == 3
            nursery.cancel_scope.cancel()

    play(story)


def test_a_broker_without_room_for_metadata_follows_again_later() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create_topic("t")
        name = await cluster.leader_of("t")
        writer = Writer(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await writer.more()
            store = cluster.universe.disk(name)
            with full(store):
                await writer.more()
                store.capacity_bytes = store.used_bytes
                await trio.sleep(5)
                known = offset_of(cluster, name)
                await trio.sleep(20)
                assert offset_of(cluster, name) == known, "nothing more fits"
                assert cluster._cluster.nodes[name].is_up
                await writer.more()
            with trio.fail_after(60):
                while offset_of(cluster, name) <= known or await cluster.leader_of("t") != name:
                    await trio.sleep(1)
            await writer.more()
            nursery.cancel_scope.cancel()
        found = await read_all(cluster, len(writer.acknowledged))
        assert [value for value in writer.acknowledged if value not in found] == []

    play(story)


def test_a_broker_that_dies_with_a_full_disk_comes_back_when_there_is_room() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create_topic("t")
        name = await cluster.leader_of("t")
        writer = Writer(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await writer.more()
            with full(cluster.universe.disk(name)):
                await writer.more()
                cluster.kill(name)
                await writer.more()
            cluster.start(name)
            await cluster.wait_ready()
            with trio.fail_after(120):
                while await cluster.leader_of("t") != name:
                    await trio.sleep(1)
            await writer.more()
            nursery.cancel_scope.cancel()
        found = await read_all(cluster, len(writer.acknowledged))
        assert [value for value in writer.acknowledged if value not in found] == []

    play(story)


def offset_of(cluster: Cluster, name: str) -> int:
    """How far a broker has read the metadata log."""
    services = cluster._cluster.nodes[name].broker
    assert services is not None
    return services.metadata.image.offset
