"""Kafka's own tool reads what we write, and finds nothing wrong with it."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record
from barnabas.runtime.real import real_world
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import LogDirectories
from barnabas.storage.dump import dump_lines
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.producers import ProducerStateConfig
from tests.compat.foreign import CODECS, Confluent, Sent
from tests.compat.java import Java
from tests.compat.running import RunningCluster
from tests.storage.rig import NOW_MS, append, batch, producer_batch

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]


def dump(java: Java, *files: Path, options: tuple[str, ...] = ()) -> str:
    return java.run("dump-log", *options, "--files", ",".join(map(str, files))).out


def write_log(directory: Path) -> PartitionLog:
    """Rolls, every codec, headers, idempotent and transactional batches, markers."""
    log = PartitionLog.open(
        Folder(real_world().disk, str(directory)),
        key=("orders", 0),
        config=TopicConfig(segment_bytes=20_000, index_interval_bytes=500),
        now_ms=NOW_MS,
        producer_state=ProducerStateConfig(),
    )
    for step in range(200):
        append(log, batch(5, timestamp=NOW_MS + 10 * step), leader_epoch=step // 50)
    for codec in range(5):
        headers = (("trace", b"1"), ("empty", None))
        records = [Record(0, NOW_MS + 5000, None, b"value %d" % place * 20, headers) for place in range(20)]
        append(log, build_batch(records, compression=codec), leader_epoch=3)
    for sequence in range(10):
        append(log, producer_batch(77, 2, sequence), leader_epoch=3)
    for epoch, committed in enumerate((True, False)):
        append(log, producer_batch(78, epoch, 0, transactional=True), leader_epoch=3)
        append(log, bytes(build_end_txn_batch(EndTxn(committed, 4), 78, epoch, NOW_MS + 9000)), leader_epoch=3)
    append(log, producer_batch(79, 0, 0, transactional=True), leader_epoch=3)
    log.close()
    return log


@pytest.mark.feature("ST-20", "ST-06", "ST-07", "ST-12")
def test_kafka_finds_our_files_sound(java: Java, tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = write_log(directory)
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 1

    printed = dump(java, *logs, options=("--deep-iteration", "--print-data-log"))
    assert re.findall(r"(?i)mismatch|corrupt|invalid|isvalid: false|found .*bytes", printed) == []
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", printed, re.MULTILINE)]
    assert offsets == list(range(log.log_end_offset))
    assert printed.count("isvalid: true") == len(list(log.batches(0)))
    assert "endTxnMarker: COMMIT coordinatorEpoch: 4" in printed

    indexes = sorted(directory.glob("*.index"))
    printed = dump(java, *indexes, options=("--index-sanity-check",))
    assert printed.count("passed sanity check.") == len(indexes)
    printed = dump(java, *indexes, *sorted(directory.glob("*.timeindex")))
    assert re.findall(r"(?i)mismatch|not found|out of order|wrong|corrupt", printed) == []
    assert printed.count("offset: ") > 50

    printed = dump(java, *sorted(directory.glob("*.snapshot")))
    assert re.search(r"producerId: 77 producerEpoch: 2 .*lastSequence: 9", printed)
    assert re.search(r"producerId: 79 producerEpoch: 0 .*currentTxnFirstOffset: (Optional(Long)?\[)?\d+", printed)


_COMPLAINTS = r"(?i)mismatch|corrupt|invalid|isvalid: false|not found|out of order|wrong|could not|exception"


@pytest.mark.feature("ST-20", "ST-06", "ST-07", "KR-02", "TO-03")
def test_kafka_finds_the_files_of_a_running_cluster_sound(java: Java, cluster: RunningCluster) -> None:
    topic = cluster.create_topic("dumped", configs={"segment.bytes": "1048576"})
    writer = Confluent(cluster.bootstrap_servers)
    chance = Random(1)
    for codec in CODECS:
        writer.produce(topic, [Sent(f"{number}", chance.randbytes(1000).hex()) for number in range(300)], codec)
    directory = cluster.partition_directory("broker-1", topic, 0)
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 1
    printed = dump(java, *logs, options=("--deep-iteration",))
    assert re.findall(_COMPLAINTS, printed) == []
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", printed, re.MULTILINE)]
    assert offsets == list(range(300 * len(CODECS)))
    printed = dump(java, *sorted(directory.glob("*.index")), *sorted(directory.glob("*.timeindex")))
    assert re.findall(_COMPLAINTS, printed) == []

    controller = cluster.layout.node(cluster.active_controller())
    metadata = sorted((cluster.layout.log_directory(controller) / "__cluster_metadata-0").glob("*.log"))
    printed = dump(java, *metadata, options=("--cluster-metadata-decoder",))
    assert re.findall(_COMPLAINTS, printed) == []
    assert "LeaderChange: " in printed
    assert printed.count('"type":"REGISTER_BROKER_RECORD"') == 3
    assert f'"type":"TOPIC_RECORD","version":0,"data":{{"name":"{topic}"' in printed


@pytest.mark.feature("ST-20", "TO-01", "TO-03")
def test_we_read_what_kafkas_own_tool_has_formatted(java: Java, tmp_path: Path) -> None:
    config = tmp_path / "node.properties"
    config.write_text(
        f"process.roles=controller\nnode.id=7\nlisteners=CONTROLLER://127.0.0.1:9093\nlog.dirs={tmp_path}/data\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=7@127.0.0.1:9093\n"
    )
    cluster_id = java.run("storage", "random-uuid").out.strip()
    java.run("storage", "format", "-t", cluster_id, "-c", str(config))
    world = real_world()
    directories = LogDirectories.open(world.disk, [str(tmp_path / "data")], 7, world.chance)
    try:
        assert directories.cluster_id == cluster_id
    finally:
        directories.abandon()
    lines = list(dump_lines(world.disk, str(tmp_path / "data" / "bootstrap.checkpoint")))
    assert any("FeatureLevelRecord" in line and "metadata.version" in line for line in lines), lines
