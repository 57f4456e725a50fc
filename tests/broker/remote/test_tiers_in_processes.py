"""Real nodes with a directory as their store: records move there, survive kills, and are read across the seam."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import NewTopic
from barnabas.client.metadata import TopicPartition
from barnabas.sync import Admin, Consumer, Producer
from barnabas.testing.cluster import ClusterForTests

COUNT = 300


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterForTests, Path]]:
    store = tmp_path_factory.mktemp("store")
    settings = {
        "remote.log.storage.system.enable": "true",
        "barnabas.remote.store.url": f"file://{store}",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    }
    cluster = ClusterForTests.start_new(tmp_path_factory.mktemp("cluster"), settings)
    try:
        yield cluster, store
    finally:
        cluster.down()


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def local_segments(cluster: ClusterForTests, topic: str) -> dict[str, list[int]]:
    """Base offsets of the segments on the disk of each broker."""
    found = {}
    for directory in cluster.layout.data.rglob(f"{topic}-0"):
        found[str(directory)] = sorted(int(each.name.partition(".")[0]) for each in directory.glob("*.log"))
    return found


@pytest.mark.feature("TS-01", "TS-02", "TS-05", "TS-06")
def test_records_move_to_the_directory_and_are_read_back_after_kills(
    tiers: tuple[ClusterForTests, Path],
) -> None:
    cluster, store = tiers
    servers = cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        configs = {
            "remote.storage.enable": "true",
            "internal.segment.bytes": "16384",
            "local.retention.bytes": "1",
            "file.delete.delay.ms": "100",
        }
        admin.create_topics(NewTopic("t", num_partitions=1, replication_factor=3, configs=configs))
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(COUNT):
            producer.send("t", b"%d " % number + b"x" * 1000, partition=0)
    until(lambda: len(list(store.rglob("*.log"))) > 10)
    until(lambda: all(bases[0] > 100 for bases in local_segments(cluster, "t").values()))
    assert len(local_segments(cluster, "t")) == 3
    brokers = ["broker-1", "broker-2", "broker-3"]
    cluster.kill(*brokers)
    cluster.start(*brokers)
    cluster.wait_ready()
    values: list[int] = []
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning([TopicPartition("t", 0)])
        deadline = time.monotonic() + 60
        while len(values) < COUNT and time.monotonic() < deadline:
            values += [int((record.value or b"").split()[0]) for record in consumer.poll(1.0)]
    assert values == list(range(COUNT))
