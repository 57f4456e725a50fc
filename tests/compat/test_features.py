"""Feature levels as Kafka's own tool changes them, and a broker of ours in a default cluster of Kafka's."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cluster.probe import NoAnswer, ask
from barnabas.kraft.format import FormatRequest, format_directories
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.runtime.disk import RealDisk
from barnabas.settings.properties import render_properties
from barnabas.storage.log_directory import read_meta_properties
from tests.compat.apache import ApacheKafka
from tests.compat.java import Java
from tests.compat.running import RunningCluster, free_base_port

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]

REFUSED = "The update failed for all features since the following feature had an error: "
JOIN_SECONDS = 60.0
STOP_SECONDS = 60.0
OURS = 2


@pytest.mark.feature("OP-04", "AD-06", "TO-01")
def test_levels_go_up_and_down_by_kafkas_tool(libs: Path, tmp_path: Path) -> None:
    cluster = RunningCluster.start_new(tmp_path)
    java = Java(libs, cluster.bootstrap_servers)
    try:
        wanted = ("--feature", "metadata.version=23")
        assert java.ask("features", "downgrade", *wanted, "--dry-run").lines == [
            "metadata.version can be downgraded to 23."
        ]
        assert java.ask("features", "downgrade", *wanted).lines == ["metadata.version was downgraded to 23."]
        printed = java.ask("features", "downgrade", "--unsafe", "--feature", "metadata.version=16", code=1).out
        assert f"{REFUSED}Unsupported metadata.version downgrade from 23 to 16." in printed
        assert java.ask("features", "downgrade", "--feature", "streams.version=0").lines == [
            "streams.version was downgraded to 0."
        ]
        assert java.ask("features", "disable", "--feature", "group.version").lines == ["group.version was disabled."]
        upgraded = java.ask("features", "upgrade", "--release-version", "4.3").lines
        raised = (
            "group.version was upgraded to 1.",
            "metadata.version was upgraded to 30.",
            "streams.version was upgraded to 1.",
        )
        assert set(raised) <= set(upgraded)
        described = java.ask("features", "describe").lines
        finalized = {line.split()[1]: line.split("FinalizedVersionLevel:")[1].split()[0] for line in described}
        assert (finalized["metadata.version"], finalized["group.version"]) == ("4.3-IV0", "1")
        assert finalized["streams.version"] == "1"
    finally:
        assert cluster.down() == []


@pytest.fixture
def default_kafka(libs: Path, tmp_path: Path) -> Iterator[ApacheKafka]:
    """One node of Kafka's, broker and controller, at the levels of a newly formatted cluster."""
    base = free_base_port()
    levels = {"share.version": 1, "streams.version": 1}
    kafka = ApacheKafka(libs, tmp_path / "kafka", (base, base + 1), {"default.replication.factor": "2"}, levels)
    kafka.start()
    yield kafka
    kafka.stop()


@pytest.mark.feature("OP-04", "MB-06")
def test_our_broker_joins_a_default_cluster(
    libs: Path, default_kafka: ApacheKafka, tmp_path: Path
) -> None:
    port = free_base_port()
    folder = tmp_path / "ours"
    folder.mkdir()
    identity = read_meta_properties(RealDisk(), str(default_kafka.data / "logs"))
    assert identity is not None
    request = FormatRequest(identity.cluster_id, OURS, [str(folder / "data")], [])
    format_directories(RealDisk(), request, random.SystemRandom())
    config = folder / "broker.properties"
    settings = {
        "process.roles": "broker",
        "node.id": str(OURS),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{default_kafka.controller_port}",
        "log.dirs": str(folder / "data"),
        # As on the other broker: whichever is asked for a coordinator creates the topic.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
    }
    config.write_text(render_properties(settings))
    with (folder / "log").open("wb") as log:
        broker = subprocess.Popen([sys.executable, "-P", "-m", "barnabas.broker", str(config)], stdout=log, stderr=log)
    try:
        _wait_for_both(port, broker, folder / "log")
        java = Java(libs, f"127.0.0.1:{port}")
        java.ask("topics", "--create", "--topic", "t", "--partitions", "2", "--replication-factor", "2")
        java.ask("console-producer", "--topic", "t", stdin="a\nb\nc\n")
        printed = java.ask(
            "console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "3", "--group", "g",
            expected="", code=0,
        )  # fmt: skip
        assert sorted(printed.lines) == ["a", "b", "c"]
    finally:
        broker.terminate()
        assert broker.wait(STOP_SECONDS) == 0


def _wait_for_both(port: int, broker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < deadline:
        assert broker.poll() is None, log.read_text()
        try:
            if len(ask(port, MetadataRequest(topics=[]), MetadataResponse).brokers) == 2:
                return
        except NoAnswer:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the broker did not join within {JOIN_SECONDS:.0f} s:\n{log.read_text()}")
