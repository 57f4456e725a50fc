"""A whole simulated cluster for stories of consumers: topics made and records written by the simplest of means."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.cluster_settings import ClusterSettings
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.world import World

OVERRIDES = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.min.session.timeout.ms": "1000",
}


class Stage:
    """The parts of a story."""

    def __init__(self, nodes: SimulatedCluster, writer: Cluster) -> None:
        self.nodes = nodes
        self.writer = writer
        self._hosts = 0

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.nodes.bootstrap)

    def world(self) -> World:
        """The cluster view of one more client."""
        self._hosts += 1
        return make_world(f"client-{self._hosts}", self.nodes.universe)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        options = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, "fetch_max_wait_ms": 50, **options}
        return Consumer(*topics, world=self.world(), bootstrap_servers=self.bootstrap_servers, **options)

    async def create(self, name: str, partitions: int = 1) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
        response = await self.writer.call_any(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert response.topics[0].error_code == 0, response
        places = [TopicPartition(name, index) for index in range(partitions)]
        while any(self.writer.leadership(place) is None for place in places):
            await self.writer.refresh([name])
            await trio.sleep(0.01)

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        leadership = self.writer.leadership(TopicPartition(topic, partition))
        assert leadership is not None
        records = build_batch([Record(0, 7, b"k", value) for value in values])
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=topic, topic_id=self.writer.topic_id(topic), partition_data=[data])],
        )
        response = await self.writer.call(leadership.node_id, request)
        assert response.responses[0].partition_responses[0].error_code == 0, response


Story = Callable[[Stage], Awaitable[None]]


def play(story: Story, seed: int = 1) -> None:
    """Run a story on six simulated nodes."""
    run_simulation(seed, _play, story)


async def _play(universe: Universe, story: Story) -> None:
    async with trio.open_nursery() as nursery:
        nodes = SimulatedCluster(universe, nursery, OVERRIDES)
        nodes.up()
        await nodes.wait_ready()
        async with nodes.client(make_world("writer", universe), ClusterSettings(request_timeout_ms=5_000)) as writer:
            with trio.fail_after(600):
                await story(Stage(nodes, writer))
        nursery.cancel_scope.cancel()


async def read(consumer: Consumer, count: int, seconds: float = 60) -> list[ConsumerRecord]:
    """At least `count` records."""
    records: list[ConsumerRecord] = []
    with trio.fail_after(seconds):
        while len(records) < count:
            records += await consumer.poll(500)
    return records


async def until(consumer: Consumer, holds: Callable[[], bool], seconds: float = 60) -> list[ConsumerRecord]:
    """Poll until that is so."""
    records: list[ConsumerRecord] = []
    with trio.fail_after(seconds):
        while not holds():
            records += await consumer.poll(100)
    return records


@asynccontextmanager
async def polled(consumer: Consumer) -> AsyncIterator[list[ConsumerRecord]]:
    """The consumer is opened, and polled in the background; gives what it reads."""
    records: list[ConsumerRecord] = []

    async def poll() -> None:
        while True:
            records.extend(await consumer.poll(100))

    async with consumer, trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        yield records
        nursery.cancel_scope.cancel()
