"""Brokers' directories with real logs, written by storage, for tests of their readers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record
from barnabas.runtime.disk import RealDisk
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_offsets,
)
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_directory import META_PROPERTIES_FILE, MetaProperties
from barnabas.storage.producers import ProducerStateConfig

NOW_MS = 1_750_000_000_000


class BrokerLogs:
    """The log directory of one broker."""

    def __init__(self, directory: Path, node_id: int = 1, segment_bytes: int = 2000) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / META_PROPERTIES_FILE).write_bytes(MetaProperties("cluster", node_id, None).format())
        self.segment_bytes = segment_bytes
        self.logs: dict[tuple[str, int], PartitionLog] = {}

    def log(self, topic: str = "orders", partition: int = 0) -> PartitionLog:
        key = (topic, partition)
        if key not in self.logs:
            config = TopicConfig(segment_bytes=self.segment_bytes, index_interval_bytes=1, segment_index_bytes=4096)
            self.logs[key] = PartitionLog.open(
                Folder(RealDisk(), str(self.path(topic, partition))),
                key=(topic, partition),
                config=config,
                now_ms=NOW_MS,
                producer_state=ProducerStateConfig(),
            )
        return self.logs[key]

    def path(self, topic: str = "orders", partition: int = 0) -> Path:
        return self.directory / f"{topic}-{partition}"

    def append(self, *batches: bytes, topic: str = "orders", partition: int = 0, leader_epoch: int = 0) -> None:
        log = self.log(topic, partition)
        for batch in batches:
            buffer = bytearray(batch)
            log.append_as_leader(buffer, list(iterate_batches(buffer)), leader_epoch, NOW_MS)
        log.set_high_watermark(log.log_end_offset)

    def checkpoint(self, *, high_watermarks: dict[tuple[str, int], int] | None = None, cleaned: int = 0) -> BrokerLogs:
        """Write checkpoints, as a broker does regularly. The logs stay open, with their state in memory."""
        marks = {key: log.high_watermark for key, log in self.logs.items()} | (high_watermarks or {})
        durable = {key: log.segments[-1].base_offset for key, log in self.logs.items()}
        (self.directory / REPLICATION_OFFSET_CHECKPOINT).write_bytes(format_offsets(marks))
        (self.directory / RECOVERY_POINT_CHECKPOINT).write_bytes(format_offsets(durable))
        (self.directory / CLEANER_OFFSET_CHECKPOINT).write_bytes(format_offsets(dict.fromkeys(self.logs, cleaned)))
        return self


def values(count: int, start: int = 0, *, size: int = 20, **options: object) -> bytes:
    """A batch of the values `v0…`, padded."""
    texts = (f"v{number}".encode().ljust(size) for number in range(start, start + count))
    return build_batch([Record(0, NOW_MS, b"k", text) for text in texts], **options)  # type: ignore[arg-type]


def produced(producer_id: int, sequence: int, count: int, *, start: int = 0, transactional: bool = False) -> bytes:
    return values(
        count,
        start,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(producer_id: int, *, committed: bool) -> bytes:
    return build_end_txn_batch(EndTxn(committed, 0), producer_id, 0, NOW_MS)


def numbers_of(batches: Iterable[object]) -> list[int]:
    """The values in RecordBatches."""
    found = []
    for batch in batches:
        found += [int(value.as_py().strip()[1:]) for value in batch.column("value")]  # type: ignore[attr-defined]
    return found
