"""Whole clusters at other levels than the default ones: formatted there, raised, lowered, restarted."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
import trio

from barnabas import Admin, Producer
from barnabas.client.admin import FeatureUpdate, UpgradeType
from barnabas.cluster import simulated
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.protocol.messages.metadata_log import FeatureLevelRecord
from barnabas.runtime.simulated import Universe
from barnabas.runtime.world import World
from barnabas.storage.dump import dump_lines
from barnabas.testing.simulated import SimulatedClusterForTests

ELR = "eligible.leader.replicas.version"
_VERSION = re.compile(r" v(\d) (\w+)\(")


class OldCluster(SimulatedClusterForTests):
    """A cluster that was formatted at other levels."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        super().__init__()
        self._levels = levels
        self._worlds: dict[str, World] = {}

    def _build(self, universe: Universe, nursery: trio.Nursery) -> SimulatedCluster:
        cluster = SimulatedCluster(universe, nursery, self._settings, features=self._levels)
        cluster.dress = self._dress
        return cluster

    def _dress(self, name: str, world: World) -> World:
        self._worlds[name] = world
        return world

    def versions(self, name: str, suffix: str) -> dict[str, set[int]]:
        """The versions of each type of record in the files of a node's metadata log with this suffix."""
        disk = self._worlds[name].disk
        directory = f"{self._cluster.nodes[name].settings.metadata_directory}/__cluster_metadata-0"
        found: dict[str, set[int]] = {}
        for file_name in disk.list(directory):
            if file_name.endswith(suffix):
                for line in dump_lines(disk, f"{directory}/{file_name}"):
                    for version, kind in _VERSION.findall(line):
                        found.setdefault(kind, set()).add(int(version))
        return found


def play(levels: Mapping[str, int], test: Callable[[OldCluster], Awaitable[None]]) -> None:
    cluster = OldCluster(levels)
    cluster.run(lambda: test(cluster))


async def write(cluster: OldCluster, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
        for number in range(count):
            await producer.send(topic, f"record {number}".encode())


async def update(cluster: OldCluster, levels: Mapping[str, int], kind: UpgradeType) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
        await admin.update_features({name: FeatureUpdate(level, kind) for name, level in levels.items()})


async def restart_all(cluster: OldCluster) -> None:
    for name in (*cluster.brokers, *cluster.controllers):
        await cluster.stop(name)
        cluster.start(name)
        await cluster.wait_ready()


@pytest.mark.feature("OP-04", "KR-10")
def test_a_cluster_that_was_formatted_long_ago_goes_up_to_the_newest_level() -> None:
    async def test(cluster: OldCluster) -> None:
        await cluster.create_topic("t")
        await write(cluster, "t", 5)
        victim = await cluster.leader_of("t")
        cluster.kill(victim)
        await cluster.leader_of("t", other_than=victim)
        cluster.start(victim)
        await cluster.wait_ready()
        written = cluster.versions("controller-101", ".log")
        assert written["RegisterBrokerRecord"] == {1}, "no log directories at 3.3-IV3"
        assert written["PartitionRecord"] == {0} and written["PartitionChangeRecord"] == {0}
        assert "RegisterControllerRecord" not in written

        await update(cluster, {"metadata.version": 30, ELR: 1, "group.version": 1}, UpgradeType.UPGRADE)
        with trio.fail_after(30):
            while cluster.versions("controller-101", ".log")["RegisterBrokerRecord"] != {1, 4}:
                await trio.sleep(0.1)
        await write(cluster, "t", 5)
        await restart_all(cluster)
        await write(cluster, "t", 5)
        assert "RegisterControllerRecord" in cluster.versions("controller-101", ".log")

    play({"metadata.version": 7, "kraft.version": 0}, test)


@pytest.mark.feature("OP-04", "KR-10")
def test_after_a_downgrade_each_node_has_a_snapshot_that_the_older_release_reads() -> None:
    async def test(cluster: OldCluster) -> None:
        await cluster.create_topic("t")
        await write(cluster, "t", 5)
        nodes = (*cluster.brokers, *cluster.controllers)
        assert all(cluster.versions(name, ".checkpoint") == {} for name in nodes)
        await update(cluster, {"metadata.version": 22, ELR: 0}, UpgradeType.SAFE_DOWNGRADE)
        with trio.fail_after(30):
            while not all(cluster.versions(name, ".checkpoint") for name in nodes):
                await trio.sleep(0.1)
        for name in nodes:
            written = cluster.versions(name, ".checkpoint")
            assert (written["RegisterBrokerRecord"], written["PartitionRecord"]) == ({3}, {1}), name
        await restart_all(cluster)
        await write(cluster, "t", 5)

    play({}, test)


@pytest.mark.feature("OP-04", "MB-06")
def test_a_default_kafka_cluster_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    kafkas = {"metadata.version": 30, "group.version": 1, "share.version": 1, "streams.version": 1}

    def records(_: Mapping[str, int]) -> Sequence[FeatureLevelRecord]:
        raised_and_lowered = [("metadata.version", 31), ("teleportation", 1), ("teleportation", 0)]
        levels = [*raised_and_lowered, *kafkas.items()]
        return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels]

    monkeypatch.setattr(simulated, "bootstrap_records", records)

    async def test(cluster: OldCluster) -> None:
        await cluster.create_topic("t")
        await write(cluster, "t", 5)
        await restart_all(cluster)
        await write(cluster, "t", 5)
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            features = await admin.describe_features()
            assert features.finalized_features["share.version"].max_version_level == 1
            assert features.supported_features["share.version"].max_version == 1
            assert features.finalized_features["streams.version"].max_version_level == 1
            assert features.supported_features["streams.version"].max_version == 1
        await update(cluster, {"share.version": 0, "streams.version": 0}, UpgradeType.SAFE_DOWNGRADE)
        await restart_all(cluster)

    play({}, test)
