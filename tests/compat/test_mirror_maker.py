"""Kafka's MirrorMaker 2 between two clusters of ours, in both directions: topics, records, offsets of groups."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas import TopicPartition, sync
from tests.compat.java import LOG4J
from tests.compat.running import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("java"), pytest.mark.feature("OP-09"), pytest.mark.slow]

MIRROR_SECONDS = 150.0
"""Under a minute on an idle machine."""
STOP_SECONDS = 30.0
COUNT = 20
CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
ONE_EACH = (
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "config.storage.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "replication.factor",
)


def settings(east: RunningCluster, west: RunningCluster) -> dict[str, str]:
    found = {
        "clusters": "east, west",
        "east.bootstrap.servers": east.bootstrap_servers,
        "west.bootstrap.servers": west.bootstrap_servers,
        "dedicated.mode.enable.internal.rest": "false",
        "plugin.discovery": "service_load",
        "emit.heartbeats.enabled": "false",
        "tasks.max": "1",
        "refresh.topics.interval.seconds": "2",
        "refresh.groups.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.interval.seconds": "1",
        "offset.lag.max": "0",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
    } | dict.fromkeys(ONE_EACH, "1")
    for flow in ("east->west", "west->east"):
        found |= {f"{flow}.enabled": "true", f"{flow}.topics": "orders.*", f"{flow}.sync.group.offsets.enabled": "true"}
        # Ours has no authorizer in this cluster, so there are no ACLs to copy.
        found[f"{flow}.sync.topic.acls.enabled"] = "false"
    return found


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[RunningCluster, RunningCluster]]:
    east = RunningCluster.start_new(tmp_path / "east")
    west = RunningCluster.start_new(tmp_path / "west")
    yield east, west
    assert [*east.down(), *west.down()] == []


@pytest.fixture
def mirror(libs: Path, clusters: tuple[RunningCluster, RunningCluster], tmp_path: Path) -> Iterator[Path]:
    """A running MirrorMaker; its log."""
    config, said = tmp_path / "mm2.properties", tmp_path / "mm2.log"
    config.write_text("".join(f"{key} = {value}\n" for key, value in settings(*clusters).items()))
    flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx400m", f"-Dlog4j2.configurationFile={LOG4J}")
    command = ["java", *flags, "-cp", f"{libs}{os.sep}*", CLASS, str(config)]
    with said.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    yield said
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(what: str, is_true: Callable[[], bool], said: Path) -> None:
    deadline = time.monotonic() + MIRROR_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"not within {MIRROR_SECONDS:.0f} s: {what}\n{said.read_text()[-4000:]}"
        time.sleep(0.2)


def read(cluster: RunningCluster, topic: str, group: str | None = None) -> list[str]:
    """The records of a topic; their offsets are committed for the group, if there is one."""
    options = {"group_id": group, "enable_auto_commit": False} if group else {}
    with sync.Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer="str",
        **options,  # type: ignore[arg-type]
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[str] = []
        deadline = time.monotonic() + MIRROR_SECONDS
        while len(found) < COUNT and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(0.5)]
        if group:
            consumer.commit()
    return found


def committed(cluster: RunningCluster, group: str, topic: str) -> int:
    with sync.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.list_consumer_group_offsets(group)[group].get(TopicPartition(topic, 0))
    return -1 if found is None else found.offset


def test_topics_records_and_groups_are_mirrored_both_ways(
    clusters: tuple[RunningCluster, RunningCluster], request: pytest.FixtureRequest
) -> None:
    east, west = clusters
    names = {"east": east.create_topic("orders-of-east"), "west": west.create_topic("orders-of-west")}
    flows = (("east", east, west), ("west", west, east))
    for name, source, _ in flows:
        with sync.Producer(bootstrap_servers=source.bootstrap_servers, value_serializer="str") as producer:
            producer.send_all(names[name], [f"{name} {number}" for number in range(COUNT)])
        assert len(read(source, names[name], f"readers-of-{name}")) == COUNT
    said: Path = request.getfixturevalue("mirror")
    for name, _, target in flows:
        topic, group = f"{name}.{names[name]}", f"readers-of-{name}"
        until(f"{topic} is there", lambda it=topic, at=target: it in at.topics_everywhere(), said)
        assert read(target, topic) == [f"{name} {number}" for number in range(COUNT)]
        until(
            f"the offset of {group} is translated",
            lambda group=group, it=topic, at=target: committed(at, group, it) == COUNT,
            said,
        )
