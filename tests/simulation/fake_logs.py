"""Logs in memory, with just what the promises look at."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.protocol.messages.metadata_log import ConfigRecord
from barnabas.protocol.records.batch import iterate_batches, set_base_offset_and_epoch
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.metadata import encode_metadata_record
from barnabas.protocol.records.record import Record


@dataclass
class FakeSegment:
    log_path: str
    content: bytearray = field(default_factory=bytearray)
    base_offset: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.content)


@dataclass
class FakeEpochs:
    listed: list[tuple[int, int]] = field(default_factory=list)

    def entries(self) -> list[tuple[int, int]]:
        return self.listed


class FakeLog:
    """One segment. `append` writes a batch of one record; `cut` takes the last batches away."""

    def __init__(self, name: str) -> None:
        self.segment = FakeSegment(name)
        self.segments = [self.segment]
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0
        self.epochs = FakeEpochs()

    @property
    def local_log_start_offset(self) -> int:
        return self.log_start_offset

    def append(self, epoch: int, value: str) -> FakeLog:
        return self._append(epoch, value.encode())

    def append_setting(self, epoch: int, name: str) -> FakeLog:
        """A record of the metadata log."""
        record = ConfigRecord(resource_type=2, resource_name="topic", name=name, value="1")
        return self._append(epoch, encode_metadata_record(record, 0))

    def _append(self, epoch: int, value: bytes) -> FakeLog:
        batch = bytearray(build_batch([Record(0, 1, None, value)]))
        set_base_offset_and_epoch(batch, 0, self.log_end_offset, epoch)
        if not self.epochs.listed or self.epochs.listed[-1][0] != epoch:
            self.epochs.listed.append((epoch, self.log_end_offset))
        self.segment.content += batch
        self.log_end_offset += 1
        return self

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def cut(self, offset: int) -> FakeLog:
        for position, header in list(iterate_batches(self.segment.content)):
            if header.base_offset == offset:
                del self.segment.content[position:]
                break
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.epochs.listed = [entry for entry in self.epochs.listed if entry[1] < offset]
        return self


class Disks:
    """Finds the content of a fake log by its name."""

    def __init__(self) -> None:
        self.logs: dict[str, FakeLog] = {}
        self.snapshots: dict[str, bytearray] = {}
        """By file name, the same on all nodes."""

    def log(self, name: str) -> FakeLog:
        self.logs[name] = log = FakeLog(name)
        return log

    def content(self, node_id: int, path: str) -> bytearray | None:
        log = self.logs.get(path)
        return self.snapshots.get(path.rpartition("/")[2]) if log is None else log.segment.content
