"""Kafka's MirrorMaker 2 between two clusters of ours, in both directions: topics, records, offsets of groups."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.java import LOG4J, Java
from tests.compat.running import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("java"), pytest.mark.feature("OP-09")]

MIRROR_SECONDS = 100.0
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


@pytest.mark.timeout(240, method="thread")
def test_topics_records_and_groups_are_mirrored_both_ways(
    libs: Path, clusters: tuple[RunningCluster, RunningCluster], request: pytest.FixtureRequest
) -> None:
    east, west = clusters
    names = {"east": east.create_topic("orders-of-east"), "west": west.create_topic("orders-of-west")}
    javas = {name: Java(libs, each.bootstrap_servers) for name, each in (("east", east), ("west", west))}
    lines = {name: [f"{name} {number}" for number in range(COUNT)] for name in names}
    for name, java in javas.items():
        java.ask("console-producer", "--topic", names[name], stdin="\n".join(lines[name]) + "\n")
        consume = ("console-consumer", "--topic", names[name], "--from-beginning", "--max-messages", str(COUNT))
        java.ask(*consume, "--group", f"readers-of-{name}")
    said: Path = request.getfixturevalue("mirror")
    for source, target, cluster in (("east", "west", west), ("west", "east", east)):
        mirrored = f"{source}.{names[source]}"
        until(f"{mirrored} is in {target}", lambda it=mirrored, at=cluster: it in at.topics_everywhere(), said)
        told = javas[target].ask(
            "console-consumer", "--topic", mirrored, "--from-beginning", "--max-messages", str(COUNT)
        )
        assert told.lines == lines[source]

        def is_translated(group: str = f"readers-of-{source}", target: str = target, topic: str = mirrored) -> bool:
            groups = javas[target].ask("consumer-groups", "--list").lines
            if group not in groups:
                return False
            described = javas[target].ask("consumer-groups", "--describe", "--group", group, expected="no active").lines
            return any(line.split()[1:4] == [topic, "0", str(COUNT)] for line in described)

        until(f"the offsets of readers-of-{source} are in {target}", is_translated, said)
