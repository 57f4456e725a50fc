"""A simulated cluster with tiered storage: segments appear in the store, logs shrink, restarts keep everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin import ConfigResource, NewTopic, ResourceType
from barnabas.client.metadata import TopicPartition
from barnabas.cluster.fault_points import REMOTE_POINTS
from barnabas.storage.log import PartitionLog
from barnabas.testing.simulated import SimulatedClusterForTests

URL = "file:///store"
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "barnabas.remote.store.url": URL,
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
}
SEGMENTS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "4096",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


class Tiers:
    """A cluster, its store, and the logs of its brokers."""

    def __init__(self, seed: int = 1, **settings: str) -> None:
        more = {name.replace("_", "."): value for name, value in settings.items()}
        self.cluster = SimulatedClusterForTests(seed, {**SETTINGS, **more})

    def run(self, test: Callable[[], Any]) -> None:
        self.cluster.run(test)

    @property
    def client(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.cluster.bootstrap_servers, "world": self.cluster.world}

    def objects(self, suffix: str = ".log") -> list[str]:
        bucket = self.cluster.universe.buckets.get(URL)
        return [] if bucket is None else sorted(key for key in bucket.objects if key.endswith(suffix))

    def logs(self, topic: str = "t", index: int = 0) -> dict[int, PartitionLog]:
        """By broker id."""
        found = {}
        for node in self.cluster._cluster.brokers:
            broker = node.broker
            partition = None if broker is None else broker.partitions.find(topic, index)
            if partition is not None:
                found[node.node.id] = partition.log
        return found

    async def start_again(self, *names: str) -> None:
        for name in names:
            await self.cluster._cluster.nodes[name].ended.wait()
            self.cluster.start(name)
        await self.cluster.wait_ready()

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        with trio.fail_after(seconds):
            while not condition():
                await trio.sleep(0.2)

    async def fill(self, count: int = 60, topic: str = "t") -> None:
        async with Producer(**self.client) as producer:
            for number in range(count):
                await producer.send(topic, b"%05d " % number + b"x" * 500, partition=0)

    async def create(self, topic: str = "t", replication_factor: int = 3, **configs: str) -> None:
        more = {name.replace("_", "."): value for name, value in configs.items()}
        async with Admin(**self.client) as admin:
            await admin.create_topics(
                NewTopic(topic, num_partitions=1, replication_factor=replication_factor, configs={**SEGMENTS, **more})
            )

    async def alter(self, topic: str, configs: Mapping[str, str | None]) -> None:
        async with Admin(**self.client) as admin:
            await admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, topic): configs})

    async def read(self, topic: str = "t") -> list[int]:
        """Numbers of all records, from the beginning."""
        log = max(self.logs(topic).values(), key=lambda each: each.log_end_offset)
        found: list[int] = []
        async with Consumer(**self.client) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning([TopicPartition(topic, 0)])
            with trio.fail_after(120):
                while len(found) < log.log_end_offset - log.log_start_offset:
                    found += [int((each.value or b"").split()[0]) for each in await consumer.poll(1.0)]
        return found


@pytest.mark.feature("TS-01", "TS-02", "TS-05")
def test_segments_become_remote_and_leave_the_disks_and_a_restart_keeps_the_start() -> None:
    tiers = Tiers()

    async def test() -> None:
        await tiers.create()
        await tiers.fill()
        await tiers.until(lambda: len(tiers.objects()) > 5)
        await tiers.until(lambda: all(log.local_log_start_offset > 30 for log in tiers.logs().values()))
        logs = tiers.logs()
        assert len(logs) == 3
        for log in logs.values():
            assert (log.log_start_offset, log.log_end_offset) == (0, 60)
            assert log.local_log_start_offset <= log.highest_copied_offset + 1
        for name in tiers.cluster.brokers:
            tiers.cluster.kill(name)
        await tiers.start_again(*tiers.cluster.brokers)
        await tiers.until(lambda: len(tiers.logs()) == 3)
        for broker, log in tiers.logs().items():
            assert log.log_start_offset == 0
            assert log.local_log_start_offset >= logs[broker].local_log_start_offset
        assert await tiers.read() == list(range(60))

    tiers.run(test)


@pytest.mark.feature("TS-07")
def test_a_topic_that_is_made_again_shares_nothing_with_the_deleted_one() -> None:
    tiers = Tiers()

    async def test() -> None:
        await tiers.create()
        await tiers.fill()
        await tiers.until(lambda: len(tiers.objects()) > 5)
        before = {key.partition("/")[0] for key in tiers.objects()}
        async with Admin(**tiers.client) as admin:
            await admin.delete_topics(["t"])
        await tiers.create()
        await tiers.fill(30)
        await tiers.until(lambda: {key.partition("/")[0] for key in tiers.objects()}.isdisjoint(before), 120)
        await tiers.until(lambda: len(tiers.objects()) > 2)
        assert await tiers.read() == list(range(30))

    tiers.run(test)


@pytest.mark.feature("TS-01", "TS-07")
def test_tiering_is_switched_off_and_on_again() -> None:
    tiers = Tiers()

    async def test() -> None:
        await tiers.create()
        await tiers.fill()
        await tiers.until(lambda: all(log.local_log_start_offset > 30 for log in tiers.logs().values()))
        off = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        await tiers.alter("t", off)
        await tiers.until(lambda: not tiers.objects(""))
        start = max(log.log_start_offset for log in tiers.logs().values())
        assert start > 30
        await tiers.alter("t", {"remote.storage.enable": "true", "remote.log.delete.on.disable": None})
        await tiers.fill(30)
        await tiers.until(lambda: len(tiers.objects()) > 2)

    tiers.run(test)


@pytest.mark.feature("TS-05", "TS-07")
@pytest.mark.parametrize("point", REMOTE_POINTS)
def test_a_leader_is_killed_at_each_step_and_no_record_is_lost(point: str) -> None:
    tiers = Tiers(seed=len(point))

    async def test() -> None:
        await tiers.create(retention_bytes="16000")
        killed: list[str] = []

        async def kill_leaders() -> None:
            while len(killed) < 2:
                name = await tiers.cluster.leader_of("t")
                tiers.cluster.universe.kill_at(name, point)
                with trio.move_on_after(20):
                    while tiers.cluster.universe.is_alive(name):
                        await trio.sleep(0.1)
                tiers.cluster.universe.disarm(name)
                if not tiers.cluster.universe.is_alive(name):
                    killed.append(name)
                    await tiers.start_again(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_leaders)
            await tiers.fill(150)
        await tiers.cluster.wait_ready()
        await tiers.until(lambda: len(tiers.logs()) == 3)
        numbers = await tiers.read()
        assert numbers == list(range(numbers[0], 150))

    tiers.run(test)
