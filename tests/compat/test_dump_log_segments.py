"""Kafka's own tool reads what we write, and finds nothing wrong with it.

Needs the jars of Kafka in the directory that the environment variable KAFKA_LIBS names, and a `java`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from protocol.records.builder import build_batch
from protocol.records.control import EndTxn, build_end_txn_batch
from protocol.records.record import Record
from runtime.real import real_world
from settings.topic import TopicConfig
from storage.log import PartitionLog
from storage.producers import ProducerStateConfig
from tests.storage.rig import NOW_MS, append, batch, producer_batch

LIBS = os.environ.get("KAFKA_LIBS", "")

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(not LIBS, reason="KAFKA_LIBS does not name a directory with Kafka's jars"),
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no java"),
]


def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
    command = ["java", "-cp", f"{LIBS}/*", "org.apache.kafka.tools.DumpLogSegments", *options, "--files"]
    done = subprocess.run(
        [*command, ",".join(map(str, files))], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_log(directory: Path) -> PartitionLog:
    """Rolls, every codec, headers, idempotent and transactional batches, markers."""
    log = PartitionLog.open(
        real_world().disk,
        str(directory),
        topic="orders",
        partition=0,
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
def test_kafka_finds_our_files_sound(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = write_log(directory)
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 1

    told = dump(*logs, options=("--deep-iteration", "--print-data-log"))
    assert re.findall(r"(?i)mismatch|corrupt|invalid|isvalid: false|found .*bytes", told) == []
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", told, re.MULTILINE)]
    assert offsets == list(range(log.log_end_offset))
    assert told.count("isvalid: true") == len(list(log.batches(0)))
    assert "endTxnMarker: COMMIT coordinatorEpoch: 4" in told

    indexes = sorted(directory.glob("*.index"))
    told = dump(*indexes, options=("--index-sanity-check",))
    assert told.count("passed sanity check.") == len(indexes)
    told = dump(*indexes, *sorted(directory.glob("*.timeindex")))
    assert re.findall(r"(?i)mismatch|not found|out of order|wrong|corrupt", told) == []
    assert told.count("offset: ") > 50

    told = dump(*sorted(directory.glob("*.snapshot")))
    assert re.search(r"producerId: 77 producerEpoch: 2 .*lastSequence: 9", told)
    assert re.search(r"producerId: 79 producerEpoch: 0 .*currentTxnFirstOffset: (Optional(Long)?\[)?\d+", told)
