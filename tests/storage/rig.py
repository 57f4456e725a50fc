"""Helpers for tests of storage: batches, and a disk that can be killed or lose its power."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from barnabas.protocol.records.batch import BatchHeader, iterate_batches
from barnabas.protocol.records.builder import BatchOptions, build_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.runtime.simulated.disk import SimulatedDisk
from barnabas.runtime.simulated.process import SimulatedProcess
from barnabas.runtime.simulated.store import Directory, Entry, Store
from barnabas.runtime.world import Disk
from barnabas.settings.topic import TopicConfig
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_results import AppendResult
from barnabas.storage.producers import ProducerStateConfig
from barnabas.storage.recovery import LastRun

DIRECTORY = "/logs/orders-0"
NOW_MS = 1_750_000_000_000
PRODUCERS = ProducerStateConfig()


def records(count: int, timestamp: int = NOW_MS, value: bytes = b"value") -> list[Record]:
    return [Record(0, timestamp + place, b"key", value) for place in range(count)]


def batch(
    count: int = 1, timestamp: int = NOW_MS, value: bytes = b"value", options: BatchOptions | None = None
) -> bytes:
    return build_batch(records(count, timestamp, value), **(options or {}))


def heads(data: bytes | bytearray) -> list[tuple[int, BatchHeader]]:
    return list(iterate_batches(data))


def append(log: PartitionLog, *batches: bytes, leader_epoch: int = 0, now_ms: int = NOW_MS) -> AppendResult:
    """Append as a leader does with a client's batch."""
    buffer = bytearray(b"".join(batches or (batch(),)))
    return log.append_as_leader(buffer, heads(buffer), leader_epoch, now_ms)


def numbered(base_offset: int, count: int = 1, leader_epoch: int = 0, timestamp: int = NOW_MS) -> bytes:
    """A batch as a follower fetches it."""
    return batch(count, timestamp, options={"base_offset": base_offset, "leader_epoch": leader_epoch})


def producer_batch(
    producer_id: int,
    epoch: int,
    sequence: int,
    count: int = 1,
    transactional: bool = False,
    value: bytes = b"value",
) -> bytes:
    return batch(
        count,
        value=value,
        options={
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "transactional": transactional,
        },
    )


def all_batches(log: PartitionLog) -> list[bytes]:
    return list(log.batches(log.log_start_offset))


def all_offsets(log: PartitionLog) -> list[int]:
    return [record.offset for data in all_batches(log) for record in decode_records(data)]


class WatchedStore(Store):
    """Reports when names are about to change, or to become durable."""

    before_names_change: Callable[[], None] | None = None

    def sync_directory(self, path: str) -> None:
        self._announce()
        super().sync_directory(path)

    def _change(self, parts: list[tuple[Directory, str, Entry | None, Entry | None]]) -> None:
        self._announce()
        super()._change(parts)

    def _announce(self) -> None:
        if self.before_names_change is not None:
            self.before_names_change()


@dataclass
class Rig:
    """One host's disk through several lives of the process."""

    seed: int = 0
    store: WatchedStore = field(init=False)
    process: SimulatedProcess = field(init=False)
    now_ms: int = NOW_MS
    locks: dict[str, SimulatedProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = WatchedStore(random.Random(self.seed), lambda: self.now_ms)
        self.store.prepare_directories("/logs")
        self.start()

    def start(self) -> Disk:
        self.process = SimulatedProcess("node", self, random.Random(self.seed), (0, 0))
        self.disk: Disk = SimulatedDisk(self.store, self.process, self.locks)
        return self.disk

    def reached(self, process: SimulatedProcess, point: str) -> None: ...

    def strikes(self, process: SimulatedProcess, *, power_cut: bool) -> bool | None:
        return power_cut

    def end(self, process: SimulatedProcess, *, power_cut: bool) -> None:
        process.ended(power_cut)
        if power_cut:
            self.store.power_cut()

    def kill(self) -> Disk:
        """SIGKILL and a restart: everything written is still there."""
        self.end(self.process, power_cut=False)
        return self.start()

    def power_cut(self) -> Disk:
        """Power loss and a restart: only synced data is certain."""
        self.end(self.process, power_cut=True)
        return self.start()

    def open(
        self,
        config: TopicConfig | None = None,
        *,
        directory: str = DIRECTORY,
        recovery_point: int = 0,
        clean_shutdown: bool = False,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
    ) -> PartitionLog:
        return PartitionLog.open(
            Folder(self.disk, directory),
            key=("orders", 0),
            config=config or TopicConfig(),
            now_ms=self.now_ms,
            last_run=LastRun(
                recovery_point, clean_shutdown, log_start_offset=log_start_offset, high_watermark=high_watermark
            ),
            producer_state=PRODUCERS,
        )

    def names(self, directory: str = DIRECTORY) -> Sequence[str]:
        return self.disk.list(directory)


def small_segments(**changes: int) -> TopicConfig:
    """Segments of a few batches, an index entry for each."""
    values = {"segment_bytes": 1000, "index_interval_bytes": 1, "segment_index_bytes": 1024} | changes
    return TopicConfig(**values)  # type: ignore[arg-type]
