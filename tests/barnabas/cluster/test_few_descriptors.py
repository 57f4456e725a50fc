"""Real brokers that may open far fewer files than they have logs, through a SIGKILL and back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import NewTopic
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.sync import Admin, Consumer, Producer

DESCRIPTORS = 512
PARTITIONS = 1_000
PATIENCE_S = 240.0
RUN = "import sys; from barnabas.cli.main import run; sys.exit(run(sys.argv[1:]))"


def with_few_descriptors(*words: str) -> None:
    """Run a command of `barnabas` whose nodes inherit the limit."""
    line = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh", sys.executable, "-c", RUN, *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    data = tmp_path / "cluster"
    base_port = free_base_port()
    try:
        with_few_descriptors("cluster", "up", "--data", str(data), "--base-port", str(base_port))
        yield LocalCluster(data)
    finally:
        LocalCluster(data).down()


def write_everywhere(cluster: LocalCluster, value: bytes) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        sent = [producer.send_nowait("many", value, partition=partition) for partition in range(PARTITIONS)]
        for each in sent:
            each.result()


def until_in_sync(cluster: LocalCluster) -> None:
    end = time.monotonic() + PATIENCE_S
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        while time.monotonic() < end:
            topic = admin.describe_topics(["many"]).succeeded.get("many")
            if topic is not None and all(len(part.isr) == 3 for part in topic.partitions):
                return
            time.sleep(0.2)
    raise AssertionError("the replicas are not in sync")


@pytest.mark.feature("OP-08", "ST-17")
def test_a_broker_with_few_descriptors_starts_after_a_kill_serves_and_replicates(cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("many", PARTITIONS, 3, configs={"min.insync.replicas": "2"})])
    until_in_sync(cluster)
    write_everywhere(cluster, b"before")
    cluster.kill("broker-3")
    write_everywhere(cluster, b"without")
    with_few_descriptors("cluster", "start", "broker-3", "--data", str(cluster.layout.data))
    until_in_sync(cluster)
    # Now the third one is needed for each record of every partition.
    cluster.kill("broker-1")
    write_everywhere(cluster, b"after")
    found: dict[int, list[bytes | None]] = {partition: [] for partition in range(PARTITIONS)}
    end = time.monotonic() + PATIENCE_S
    servers = cluster.bootstrap_servers
    with Consumer("many", bootstrap_servers=servers, group_id="all", auto_offset_reset="earliest") as consumer:
        while sum(map(len, found.values())) < 3 * PARTITIONS and time.monotonic() < end:
            for record in consumer.poll(1_000):
                found[record.partition].append(record.value)
    assert [partition for partition, values in found.items() if values != [b"before", b"without", b"after"]] == []
    for node in cluster.layout.brokers:
        text = cluster.layout.log_file(node).read_text(errors="replace")
        assert "is offline" not in text, node.name
