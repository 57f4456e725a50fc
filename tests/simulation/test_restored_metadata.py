"""Controllers go back to the metadata of an old backup: brokers return in any order, no acknowledged record is lost."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
import trio

from barnabas import Admin, Consumer, Producer
from barnabas.broker.log_ends import list_log_ends
from barnabas.client.cluster import TopicPartition
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.restore import raised, read_metadata, restore
from barnabas.kraft.restored_replicas import decided, undecided
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.simulated import Universe
from barnabas.runtime.world import World
from barnabas.storage.log_ends import BrokerLogEnds
from barnabas.testing.simulated import SimulatedClusterForTests

PARTITIONS = {"before": 4, "after": 2}
"""The topic `after` is made after the backup."""
ROUNDS = 4
SEEDS = range(1, 9)
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class RestoredCluster(SimulatedClusterForTests):
    """A cluster whose disks are read and changed while its nodes are down."""

    def __init__(self, seed: int, features: dict[str, int], settings: Mapping[str, str] | None = None) -> None:
        super().__init__(seed=seed, settings={**SETTINGS, **(settings or {})})
        self.chance = Random(f"{seed}/restore")
        self._features = features
        self._worlds: dict[str, World] = {}
        self.acknowledged: dict[str, set[bytes]] = {topic: set() for topic in PARTITIONS}
        self._sent = 0

    def _build(self, universe: Universe, nursery: trio.Nursery) -> SimulatedCluster:
        cluster = SimulatedCluster(universe, nursery, self._settings, features=self._features)
        cluster.dress = self._dress
        return cluster

    def _dress(self, name: str, world: World) -> World:
        self._worlds[name] = world
        return world

    def backup(self) -> MetadataImage:
        name = self.controllers[0]
        return read_metadata(self._worlds[name].disk, self._cluster.nodes[name].settings.metadata_directory).image

    async def write(self, topic: str, count: int) -> None:
        """Records for all partitions; those that all in-sync replicas acknowledge count."""
        async with Producer(
            bootstrap_servers=self.bootstrap_servers,
            world=self.world,
            delivery_timeout_ms=20_000,
            request_timeout_ms=5_000,
        ) as producer:
            for _ in range(count):
                self._sent += 1
                value = f"{topic} {self._sent}".encode()
                try:
                    await producer.send(topic, value, partition=self._sent % PARTITIONS[topic])
                except KafkaError:
                    continue
                self.acknowledged[topic].add(value)

    async def read(self, topic: str) -> set[bytes | None]:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS[topic])]
        found: set[bytes | None] = set()
        async with Consumer(bootstrap_servers=self.bootstrap_servers, world=self.world) as consumer:
            consumer.assign(places)
            consumer.seek_to_beginning(places)
            with trio.move_on_after(60):
                while not found >= self.acknowledged[topic]:
                    found |= {record.value for record in await consumer.poll(1.0)}
        return found

    async def bad_days(self) -> None:
        """Leaders change, brokers miss records, a topic is made, replicas move."""
        await self.create_topic("after", PARTITIONS["after"])
        for _ in range(ROUNDS):
            down = self.chance.choice(self.brokers)
            self.kill(down)
            for topic in PARTITIONS:
                await self.write(topic, 6)
            self.start(down)
            await trio.sleep(self.chance.choice((0.1, 1.0, 5.0)))
            if self.chance.random() < 0.5:
                await self.wait_ready()
                await self.move("before", self.chance.randrange(PARTITIONS["before"]))
        await self.write("before", 6)
        self.kill(*self.chance.sample(self.brokers, 1))
        await self.write("before", 6)

    async def move(self, topic: str, partition: int) -> None:
        """Two of three brokers have the partition from now on."""
        place = TopicPartition(topic, partition)
        async with Admin(bootstrap_servers=self.bootstrap_servers, world=self.world) as admin:
            await admin.alter_partition_reassignments({place: self.chance.sample((1, 2, 3), 2)})
            with trio.move_on_after(self.chance.choice((0.5, 20.0))):
                while await admin.list_partition_reassignments([place]):
                    await trio.sleep(0.2)

    def directories(self, name: str) -> list[str]:
        return self._worlds[name].disk.list(self._cluster.nodes[name].settings.log_dirs[0])

    def knows(self, name: str, topic: str) -> bool:
        services = self._cluster.nodes[name].broker
        return services is not None and topic in services.metadata.image.topics.by_name

    async def kill_running(self, *names: str) -> None:
        running = [name for name in names if self._cluster.nodes[name].running]
        self.kill(*running)
        for name in running:
            await self._cluster.nodes[name].ended.wait()

    async def log_ends(self, name: str) -> BrokerLogEnds:
        found: list[BrokerLogEnds] = []

        async def command(world: World) -> None:
            settings = self._cluster.nodes[name].settings
            found.append(list_log_ends(world.disk, settings, world.chance, world.wall_clock.now_ms()))

        assert await self.universe.run_node(name, command)
        return found[0]

    async def restore(self, image: MetadataImage) -> None:
        for name in self.controllers:

            async def command(world: World, name: str = name) -> None:
                directory = self._cluster.nodes[name].settings.metadata_directory
                restore(world.disk, directory, raised(image, 1000), f"{world.chance.randbytes(16).hex()}")

            assert await self.universe.run_node(name, command)

    async def return_in_any_order(self, brokers: list[str]) -> None:
        self.start(*self.controllers)
        for name in self.chance.sample(brokers, len(brokers)):
            self.start(name)
            await trio.sleep(self.chance.choice((0.0, 1.0, 10.0)))
        await self._cluster.wait_until(self._without_leader, 60.0)

    def _without_leader(self) -> str:
        """A partition that nobody leads."""
        for topic, partitions in PARTITIONS.items():
            for index in range(partitions):
                if not self._leader(topic, index):
                    return f"{topic}-{index}"
        return ""


@pytest.mark.feature("OP-07", "FI-01")
@pytest.mark.parametrize("elr", [0, 1], ids=["isr", "elr"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_longest_logs_lead_after_a_restore(seed: int, elr: int) -> None:
    cluster = RestoredCluster(seed, {"eligible.leader.replicas.version": elr})

    async def test() -> None:
        await cluster.create_topic("before", PARTITIONS["before"])
        await cluster.write("before", 6)
        copy = cluster.backup()
        await cluster.bad_days()
        await cluster.kill_running(*cluster.brokers, *cluster.controllers)
        lost = cluster.chance.choice([None, *cluster.brokers])
        names = [name for name in cluster.brokers if name != lost]
        ends = [await cluster.log_ends(name) for name in names]
        without = [] if lost is None else [int(lost.rpartition("-")[2])]
        restored = decided(copy, ends, without)
        await cluster.restore(restored.image)
        await cluster.return_in_any_order(names)
        for topic, acknowledged in cluster.acknowledged.items():
            missing = acknowledged - await cluster.read(topic)
            assert not missing, f"{topic} of {len(acknowledged)}, without {lost}: {missing}, {restored.notes}"

    cluster.run(test)


@pytest.mark.feature("OP-07")
def test_a_broker_that_runs_through_a_restore_deletes_nothing() -> None:
    cluster = RestoredCluster(1, {})

    async def test() -> None:
        await cluster.create_topic("before", PARTITIONS["before"])
        copy = cluster.backup()
        await cluster.create_topic("after", PARTITIONS["after"])
        await cluster.write("after", 6)
        await cluster.kill_running(*cluster.controllers)
        await cluster.restore(undecided(copy))
        cluster.start(*cluster.controllers)
        for name in cluster.brokers:
            with trio.fail_after(120):
                while cluster.knows(name, "after"):
                    await trio.sleep(1.0)
        await trio.sleep(120.0)
        for name in cluster.brokers:
            kept = [it for it in cluster.directories(name) if it.startswith("after-")]
            assert len(kept) == PARTITIONS["after"]
            assert all(it.endswith("-stray") for it in kept)

    cluster.run(test)
