"""Real nodes with a bucket as their store, whose server is away for a while: nothing is lost, and all is read back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from barnabas.client.admin import NewTopic
from barnabas.client.metadata import TopicPartition
from barnabas.runtime.object_store import StoredObject
from barnabas.runtime.real import real_world
from barnabas.settings.object_store import (
    STORE_ACCESS_KEY,
    STORE_ENDPOINT,
    STORE_RETRIES,
    STORE_SECRET_KEY,
    STORE_TIMEOUT,
    STORE_URL,
)
from barnabas.sync import Admin, Consumer, Producer
from barnabas.testing.cluster import ClusterForTests
from tests.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, create_bucket, moto_server, versity_server

pytestmark = pytest.mark.feature("TS-01", "TS-03", "TS-05", "TS-06")

BATCH = 100


@pytest.fixture(params=["moto", pytest.param("versitygw", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[S3Server]:
    if request.param == "moto":
        server = moto_server(tmp_path)
    else:
        found = versity_server(tmp_path)
        if found is None:
            pytest.skip("there is no versitygw; `make versitygw` builds it")
        server = found
    server.start()
    try:
        if request.param == "moto":
            create_bucket(server)
        yield server
    finally:
        server.kill()


@pytest.fixture
def cluster(server: S3Server, tmp_path: Path) -> Iterator[ClusterForTests]:
    settings = {
        "remote.log.storage.system.enable": "true",
        STORE_URL: f"s3://{BUCKET}/cluster-1",
        STORE_ENDPOINT: server.url,
        STORE_ACCESS_KEY: ACCESS_KEY,
        STORE_SECRET_KEY: SECRET_KEY,
        STORE_TIMEOUT: "2000",
        STORE_RETRIES: "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    }
    cluster = ClusterForTests.start_new(tmp_path / "cluster", settings)
    try:
        yield cluster
    finally:
        cluster.down()


def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def stored(server: S3Server) -> list[StoredObject]:
    """Logs in the bucket."""
    open_store = real_world().object_store
    assert open_store is not None
    found = trio.run(open_store(server.settings("cluster-1")).list, "")
    return [each for each in found if each.key.endswith(".log")]


def first_local_offsets(cluster: ClusterForTests) -> list[int]:
    """Base offset of the first segment on the disk of each replica."""
    directories = cluster.layout.data.rglob("t-0")
    return [min(int(each.name.partition(".")[0]) for each in directory.glob("*.log")) for directory in directories]


def logs_of(cluster: ClusterForTests) -> str:
    """The logs of all brokers."""
    return "".join(cluster.layout.log_file(node).read_text(errors="replace") for node in cluster.layout.brokers)


def test_a_server_that_is_away_stops_copies_and_nothing_else(server: S3Server, cluster: ClusterForTests) -> None:
    servers = cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        configs = {
            "remote.storage.enable": "true",
            "internal.segment.bytes": "16384",
            "local.retention.bytes": "1",
            "file.delete.delay.ms": "100",
        }
        admin.create_topics(NewTopic("t", num_partitions=1, replication_factor=3, configs=configs))

    def produce(first: int) -> None:
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(first, first + BATCH):
                producer.send("t", b"%d " % number + b"x" * 1000, partition=0)

    produce(0)
    until(lambda: len(stored(server)) >= 4)
    until(lambda: min(first_local_offsets(cluster)) > 40)
    if server.keeps_files:
        server.kill()
    else:
        server.pause()
    produce(BATCH)
    until(lambda: logs_of(cluster).count("cannot copy to the remote store, again in ") >= 3)
    held = first_local_offsets(cluster)
    assert max(held) < BATCH, "what is not in the store stays on the disks"
    if server.keeps_files:
        server.start()
    else:
        server.resume()
    until(lambda: min(first_local_offsets(cluster)) > BATCH + 40)
    produce(2 * BATCH)
    values: list[int] = []
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning([TopicPartition("t", 0)])
        deadline = time.monotonic() + 60
        while len(values) < 3 * BATCH and time.monotonic() < deadline:
            values += [int((record.value or b"").split()[0]) for record in consumer.poll(1.0)]
    assert values == list(range(3 * BATCH))
    logs = logs_of(cluster)
    assert SECRET_KEY not in logs and ACCESS_KEY not in logs
    assert "Traceback" not in logs
