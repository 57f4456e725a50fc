"""A log, its closed segments in a store of bytes, and a seam between the remote and the local part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from barnabas.broker.remote.index_cache import IndexCache
from barnabas.broker.remote.reader import RemoteReader
from barnabas.broker.remote.segment_store import IndexKind
from barnabas.broker.remote.wanted import RemoteRecords, Wanted
from barnabas.runtime.object_store import NoSuchObject, StoreError
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import PartitionLog
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment, SegmentState, SegmentUpdate
from barnabas.storage.segment_export import export_segment
from barnabas.storage.transaction_index import AbortedTransaction
from tests.storage.rig import NOW_MS

T = TypeVar("T")

KEY = RemotePartitionKey(bytes(range(16)), "orders", 0)


class Clock:
    def __init__(self, now_ms: int = 1_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms


@dataclass
class ByteStore:
    """Segments by id. `error` is raised by the next calls, if it is set."""

    logs: dict[bytes, bytes] = field(default_factory=dict)
    indexes: dict[tuple[bytes, IndexKind], bytes] = field(default_factory=dict)
    error: StoreError | None = None
    reads: Counter[str] = field(default_factory=Counter)

    async def read(self, segment: RemoteSegment, start: int, count: int) -> bytes:
        await trio.lowlevel.checkpoint()
        self.reads["log"] += 1
        if self.error is not None:
            raise self.error
        if segment.segment_id not in self.logs:
            raise NoSuchObject(f"get {segment}: there is no such object")
        return self.logs[segment.segment_id][start : start + count]

    async def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        await trio.lowlevel.checkpoint()
        self.reads[kind.name] += 1
        if self.error is not None:
            raise self.error
        found = self.indexes.get((segment.segment_id, kind))
        if found is None:
            raise NoSuchObject(f"get {kind} of {segment}: there is no such object")
        return found


@dataclass
class Seam:
    """The log of a leader: its segments before `local_log_start_offset` are only remote."""

    log: PartitionLog
    local_log_start_offset: int
    epochs: LeaderEpochs

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        found = []
        for segment in self.log.segments:
            if segment.base_offset >= self.local_log_start_offset:
                found += segment.aborted.collect(from_offset, upper_offset)[0]
        return found


class Tiers:
    """Copies of the closed segments of a log, and a reader of them."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.store = ByteStore()
        self.segments = PartitionSegments(KEY)
        self.segments.is_complete = True
        self.clock = Clock()
        self.indexes = IndexCache(self.store, self.clock, lambda: 1 << 20, 60_000)
        self.reader = RemoteReader(self.store, lambda _key: self.segments, self.indexes)
        self._copies = 0

    def seam(self, local_start: int | None = None) -> Seam:
        start = self.log.active_segment.base_offset if local_start is None else local_start
        return Seam(self.log, start, self.log.epochs)

    def copy_closed(self, broker_id: int = 1) -> None:
        for place in range(len(self.log.segments) - 1):
            self.copy(place, broker_id)

    def copy(self, place: int, broker_id: int = 1) -> RemoteSegment:
        export = export_segment(self.log, self.log.segments[place].base_offset)
        assert export is not None
        content = export.read(NOW_MS)
        self._copies += 1
        segment_id = self._copies.to_bytes(16, "big")
        segment = RemoteSegment(
            key=KEY,
            segment_id=segment_id,
            start_offset=export.base_offset,
            end_offset=export.end_offset - 1,
            max_timestamp_ms=export.max_timestamp_ms,
            broker_id=broker_id,
            event_timestamp_ms=NOW_MS,
            size_bytes=export.log.count,
            state=SegmentState.COPY_SEGMENT_STARTED,
            leader_epochs=export.leader_epochs,
            transaction_index_is_empty=not export.has_aborted,
        )
        self.store.logs[segment_id] = export.log.file.pread(export.log.count, export.log.offset)
        kinds = {
            IndexKind.OFFSET: content.offset_index,
            IndexKind.TIMESTAMP: content.time_index,
            IndexKind.PRODUCER_SNAPSHOT: content.producer_snapshot,
            IndexKind.LEADER_EPOCH: content.leader_epochs,
        }
        if content.transaction_index is not None:
            kinds[IndexKind.TRANSACTION] = content.transaction_index
        self.store.indexes |= {(segment_id, kind): data for kind, data in kinds.items()}
        self.segments.apply(segment)
        self.move(segment, SegmentState.COPY_SEGMENT_FINISHED)
        export.close()
        return segment

    def move(self, segment: RemoteSegment, state: SegmentState) -> None:
        self.segments.apply(SegmentUpdate(KEY, segment.segment_id, NOW_MS, state, segment.broker_id))

    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        least: bool = True,
        aborted: bool = False,
        seam: Seam | None = None,
    ) -> RemoteRecords:
        seam = seam or self.seam()
        return run(lambda: self.reader.read(KEY, seam, Wanted(offset, max_bytes, least, aborted)))


def run(work: Callable[[], Awaitable[T]]) -> T:
    """The result of asynchronous work."""

    async def main() -> T:
        return await work()

    return trio.run(main)
