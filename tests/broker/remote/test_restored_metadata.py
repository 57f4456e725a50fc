"""`__remote_log_metadata` is deleted, and `barnabas storage restore-remote-metadata` makes it again from the store."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.client.admin import NewTopic
from barnabas.client.metadata import TopicPartition
from barnabas.settings.object_store import STORE_ACCESS_KEY, STORE_ENDPOINT, STORE_SECRET_KEY, STORE_URL
from barnabas.sync import Admin, Consumer, Producer
from barnabas.testing.cluster import ClusterForTests
from tests.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, create_bucket, moto_server

COUNT = 150
METADATA_TOPIC = "__remote_log_metadata"
BROKERS = ("broker-1", "broker-2", "broker-3")


@dataclass(frozen=True)
class Lost:
    """A cluster whose records are mostly in the store."""

    cluster: ClusterForTests

    @property
    def command(self) -> list[str]:
        layout = self.cluster.layout
        config = layout.config_file(layout.node("broker-1"))
        words = ["storage", "restore-remote-metadata", "--config", str(config)]
        return [*words, "-b", self.cluster.bootstrap_servers]

    def produce(self, topic: str, first: int, count: int) -> None:
        with Producer(bootstrap_servers=self.cluster.bootstrap_servers) as producer:
            for number in range(first, first + count):
                producer.send(topic, b"%d " % number + b"x" * 1000, partition=0)

    def read(self, topic: str, count: int, seconds: float = 60) -> list[int]:
        values: list[int] = []
        with Consumer(bootstrap_servers=self.cluster.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning([TopicPartition(topic, 0)])
            deadline = time.monotonic() + seconds
            while len(values) < count and time.monotonic() < deadline:
                values += [int((record.value or b"").split()[0]) for record in consumer.poll(1.0)]
        return values

    def create(self, topic: str) -> None:
        configs = {
            "remote.storage.enable": "true",
            "internal.segment.bytes": "16384",
            "local.retention.bytes": "1",
            "file.delete.delay.ms": "100",
        }
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            admin.create_topics(NewTopic(topic, num_partitions=1, replication_factor=3, configs=configs))

    def delete(self, topic: str) -> None:
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            admin.delete_topics([topic])

    def first_local_offsets(self, topic: str) -> list[int]:
        directories = self.cluster.layout.data.rglob(f"{topic}-0")
        return [min(int(each.name.partition(".")[0]) for each in directory.glob("*.log")) for directory in directories]

    def restart(self) -> None:
        self.cluster.kill(*BROKERS)
        self.cluster.start(*BROKERS)
        self.cluster.wait_ready()


@pytest.fixture(params=["directory", "moto"])
def lost(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lost]:
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    }
    server = None
    if request.param == "moto":
        server = moto_server(tmp_path)
        server.start()
        create_bucket(server)
        settings |= {
            STORE_URL: f"s3://{BUCKET}/cluster-1",
            STORE_ENDPOINT: server.url,
            STORE_ACCESS_KEY: ACCESS_KEY,
            STORE_SECRET_KEY: SECRET_KEY,
        }
    else:
        store = tmp_path / "store"
        store.mkdir()
        settings[STORE_URL] = f"file://{store}"
    cluster = None
    try:
        cluster = ClusterForTests.start_new(tmp_path / "cluster", settings)
        yield Lost(cluster)
    finally:
        if cluster is not None:
            cluster.down()
        if server is not None:
            server.kill()


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.feature("TS-04", "TS-03")
def test_every_record_is_readable_again(lost: Lost, capsys: pytest.CaptureFixture[str]) -> None:
    lost.create("t")
    lost.produce("t", 0, COUNT)
    until(lambda: min(lost.first_local_offsets("t")) > COUNT // 2)

    assert run(lost.command) == 0
    assert "0 segments would be added to __remote_log_metadata, which knew " in capsys.readouterr().out

    lost.delete(METADATA_TOPIC)
    lost.restart()
    assert lost.read("t", COUNT, seconds=3) == [], "nobody knows where the first records are"

    # What is on the disks is copied meanwhile, and known again.
    assert run([*lost.command, "--add"]) == 0
    shown = capsys.readouterr()
    assert "t-0: " in shown.out and " segments, offsets 0 to " in shown.out
    assert re.search(r"would be added to __remote_log_metadata, which knew \d: run .* with --execute", shown.out)
    assert lost.read("t", COUNT, seconds=3) == [], "it was only listed"

    assert run([*lost.command, "--add", "--execute"]) == 0
    assert "segments are added to __remote_log_metadata, which knew " in capsys.readouterr().out
    assert lost.read("t", COUNT) == list(range(COUNT))
    lost.produce("t", COUNT, COUNT)
    until(lambda: min(lost.first_local_offsets("t")) > COUNT + COUNT // 2)
    lost.restart()
    assert lost.read("t", 2 * COUNT) == list(range(2 * COUNT))


@pytest.mark.feature("TS-04")
def test_a_partition_that_is_known_is_added_to_only_on_demand(lost: Lost, capsys: pytest.CaptureFixture[str]) -> None:
    lost.create("t")
    lost.produce("t", 0, COUNT)
    until(lambda: min(lost.first_local_offsets("t")) > COUNT // 2)
    lost.delete(METADATA_TOPIC)
    lost.restart()
    lost.produce("t", COUNT, COUNT)
    until(lambda: max(lost.first_local_offsets("t")) > COUNT + COUNT // 2)

    assert run([*lost.command, "--execute"]) == 1
    assert "__remote_log_metadata has records of t-0, and does not know " in capsys.readouterr().err
    assert lost.read("t", COUNT, seconds=3) == []
    assert run([*lost.command, "--execute", "--add"]) == 0
    assert lost.read("t", 2 * COUNT) == list(range(2 * COUNT))
    # A broker that had more on its disk than its leader had to keep it until now.
    until(lambda: min(lost.first_local_offsets("t")) > COUNT + COUNT // 2)
    capsys.readouterr()
    until(lambda: run(lost.command) == 0)  # while a segment is copied, the store has it before the topic
    assert "0 segments would be added" in capsys.readouterr().out


@pytest.mark.feature("TS-04")
def test_a_store_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", "restore-remote-metadata", "-b", "127.0.0.1:9"]) == 2
    assert "name a store: URL, or --config" in capsys.readouterr().err
