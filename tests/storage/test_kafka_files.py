"""Files written by Apache Kafka 4.3.1, and our bytes for the same batches.

`data/kafka-4.3.1-logs.tar.gz` has one log twice, after a clean stop and after a crash: 120 batches of three records in
epochs 2 to 4, every tenth in gzip, lz4 or zstd, every fourth of producer 900, rolled at offset 213.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from barnabas.protocol.records.batch import read_header
from barnabas.runtime.real import real_world
from barnabas.settings.topic import TopicConfig
from barnabas.storage.dump import dump_lines
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.partition_metadata import format_partition_metadata, read_partition_metadata
from barnabas.storage.producers import ProducerStateConfig
from barnabas.storage.recovery import LastRun
from tests.storage.rig import NOW_MS, all_batches, all_offsets

DATA = Path(__file__).parent / "data" / "kafka-4.3.1-logs.tar.gz"
CONFIG = TopicConfig(segment_bytes=1 << 20, index_interval_bytes=400, segment_index_bytes=4096)
DISK = real_world().disk


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    with tarfile.open(DATA) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def open_log(directory: Path, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        Folder(DISK, str(directory)),
        key=("orders", 0),
        config=CONFIG,
        now_ms=NOW_MS,
        last_run=LastRun(recovery_point, clean),
        producer_state=ProducerStateConfig(),
    )


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.feature("ST-20", "ST-12")
@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_a_log_of_kafka_is_opened_and_served(unpacked: Path, state: str) -> None:
    log = open_log(unpacked / state / "orders-0", clean=state == "clean")
    assert log.recovery_events == []
    assert [segment.base_offset for segment in log.segments] == [0, 213]
    assert all_offsets(log) == list(range(360))
    assert log.epochs.entries() == [(2, 0), (3, 120), (4, 240)]
    assert log.producers is not None
    (entry,) = log.producers.entries.values()
    assert (entry.producer_id, entry.epoch, entry.last_sequence) == (900, 1, 89)
    assert log.offset_for_timestamp(NOW_MS + 501) == (NOW_MS + 501, 151, 3)
    assert log.offset_for_max_timestamp() == (NOW_MS + 1192, 359, 4)
    assert read_partition_metadata(DISK, log.directory) == bytes(range(16))


@pytest.mark.feature("ST-20")
def test_after_our_clean_stop_it_is_the_log_that_kafka_would_have_left(unpacked: Path) -> None:
    """Kafka's crashed log, recovered and closed by us, equals Kafka's clean one byte for byte."""
    open_log(unpacked / "crashed" / "orders-0", clean=False).close()
    assert files(unpacked / "crashed" / "orders-0") == files(unpacked / "clean" / "orders-0")


@pytest.mark.feature("ST-20", "ST-06", "ST-07", "ST-11", "ST-12")
def test_the_same_batches_make_the_same_files(unpacked: Path) -> None:
    """Log, indexes, producer snapshots, epochs and partition metadata: every byte as Kafka writes it."""
    kafka = unpacked / "clean" / "orders-0"
    ours = open_log(unpacked / "ours" / "orders-0", clean=False)
    for data in all_batches(open_log(kafka, clean=True)):
        if read_header(data).base_offset == 213:
            ours.roll(NOW_MS)
        ours.append_as_follower(data, NOW_MS)
    ours.close()
    (unpacked / "ours" / "orders-0" / "partition.metadata").write_bytes(format_partition_metadata(bytes(range(16))))
    assert files(unpacked / "ours" / "orders-0") == files(kafka)


@pytest.mark.feature("ST-20")
def test_a_log_of_kafka_is_dumped(unpacked: Path) -> None:
    dumps = {
        path.name: list(dump_lines(DISK, str(path))) for path in sorted((unpacked / "crashed" / "orders-0").iterdir())
    }
    log = dumps["00000000000000000213.log"]
    assert log[0].startswith("offsets 213 to 215, at byte 0, ")
    assert sum(line.startswith("  offset ") for line in log) == 147
    assert any("producer 900 epoch 1, sequence 54 to 56" in line for line in log)
    assert dumps["00000000000000000213.index"][-1].endswith("preallocated bytes of zeros")
    assert dumps["00000000000000000213.timeindex"][0].startswith("timestamp 17500000007")
    (producer,) = dumps["00000000000000000213.snapshot"]
    assert producer.startswith("producer 900 epoch 1, last sequence 53, offsets 204 to 206, ")
    assert dumps["leader-epoch-checkpoint"] == [
        "epoch 2 from offset 0",
        "epoch 3 from offset 120",
        "epoch 4 from offset 240",
    ]
    assert dumps["partition.metadata"] == ["version: 0", "topic_id: AAECAwQFBgcICQoLDA0ODw"]
