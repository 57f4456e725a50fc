"""Controllers go back to an old backup when most records are only in the store: nothing of that is forgotten."""

from __future__ import annotations

import pytest
import trio

from barnabas import Admin
from barnabas.client.admin import ConfigResource, NewTopic, ResourceType
from barnabas.kraft.restored_replicas import decided
from barnabas.storage.log import PartitionLog
from tests.broker.remote.test_copies_in_a_cluster import SEGMENTS
from tests.broker.remote.test_copies_in_a_cluster import SETTINGS as TIERED_SETTINGS
from tests.simulation.test_restored_metadata import PARTITIONS, RestoredCluster

TOPIC = "after"


class TieredCluster(RestoredCluster):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, {}, TIERED_SETTINGS)

    async def create(self, **configs: str) -> None:
        changes = {name.replace("_", "."): value for name, value in configs.items()}
        async with Admin(bootstrap_servers=self.bootstrap_servers, world=self.world) as admin:
            await admin.create_topics(
                NewTopic(TOPIC, num_partitions=PARTITIONS[TOPIC], replication_factor=3, configs=SEGMENTS | changes)
            )

    async def alter(self, **configs: str) -> None:
        changes = {name.replace("_", "."): value for name, value in configs.items()}
        async with Admin(bootstrap_servers=self.bootstrap_servers, world=self.world) as admin:
            await admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, TOPIC): changes})

    def logs(self) -> list[PartitionLog]:
        """The logs of all running brokers."""
        found = []
        for node in self._cluster.brokers:
            for index in range(PARTITIONS[TOPIC]):
                partition = None if node.broker is None else node.broker.partitions.find(TOPIC, index)
                if partition is not None:
                    found.append(partition.log)
        return found

    async def until_remote(self, *, empty: bool, logs: int = 6) -> None:
        """Until the first records are in the store alone; with `empty`, until all are."""
        with trio.fail_after(240):
            while len(self.logs()) < logs or not all(
                log.local_log_start_offset == log.log_end_offset if empty else log.local_log_start_offset > 10
                for log in self.logs()
            ):
                await trio.sleep(0.5)


@pytest.mark.feature("OP-07", "TS-02", "TS-08")
@pytest.mark.parametrize("copied", ["before it was created", "before it was tiered", "last"])
@pytest.mark.parametrize("empty", [False, True], ids=["partly-expired", "all-remote"])
def test_records_that_are_only_in_the_store_count_and_are_read_after_a_restore(copied: str, empty: bool) -> None:
    cluster = TieredCluster(seed=len(copied))

    async def test() -> None:
        await cluster.create_topic("before", PARTITIONS["before"])
        copy = cluster.backup()
        is_tiered = "false" if copied == "before it was tiered" else "true"
        await cluster.create(internal_segment_bytes="1000", remote_storage_enable=is_tiered)
        await cluster.write(TOPIC, 2)
        if copied != "before it was created":
            copy = cluster.backup()
        local = {"local_retention_ms": "2000", "segment_ms": "5000"} if empty else {}
        await cluster.alter(remote_storage_enable="true", **local)
        await cluster.write(TOPIC, 60)
        await cluster.until_remote(empty=empty)
        behind = cluster.brokers[-1]
        await cluster.kill_running(behind)
        await cluster.write(TOPIC, 60)
        await cluster.until_remote(empty=empty, logs=4)
        if copied == "last":
            copy = cluster.backup()
        wanted = sorted(log.log_end_offset for log in cluster.logs())
        await cluster.kill_running(*cluster.brokers, *cluster.controllers)
        ends = [await cluster.log_ends(name) for name in cluster.brokers]
        listed = [each for broker in ends for each in broker.logs if each.topic == TOPIC]
        assert sorted(each.end_offset for each in listed)[2:] == wanted
        assert all(each.leader_epoch >= 0 and each.is_tiered for each in listed)
        await cluster.restore(decided(copy, ends).image)
        await cluster.return_in_any_order(list(cluster.brokers))
        assert not cluster.acknowledged[TOPIC] - await cluster.read(TOPIC)
        assert {log.log_start_offset for log in cluster.logs()} == {0}

    cluster.run(test)
