"""A simulated cluster with tiered storage: segments appear in the store, local logs shrink, restarts keep everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio

from barnabas import Admin, Producer
from barnabas.client.admin import NewTopic
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
            await admin.alter_topic_configs(topic, configs)


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
        tiers.cluster.start(*tiers.cluster.brokers)
        await tiers.cluster.wait_ready()
        await tiers.until(lambda: len(tiers.logs()) == 3)
        for broker, log in tiers.logs().items():
            assert log.log_start_offset == 0
            assert log.local_log_start_offset == logs[broker].local_log_start_offset

    tiers.run(test)
