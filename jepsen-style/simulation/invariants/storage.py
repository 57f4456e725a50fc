"""The promises of a log on disk: what was flushed is there after a power cut, and indexes agree with the log.

- Whatever lay below the recovery point when the power went comes back, byte for byte. A replica that lost its tail is
  excused from having what is committed (see `partitions`), never from having what it has flushed itself.
- Each entry of an offset index is where a batch begins, and names its last offset; each of a time index is the largest
  timestamp up to an offset.
- The list of aborted transactions is what the markers in the log add up to.

A failed fsync excuses nothing: the pages that it lost show in the cache, but nobody may take them for flushed until
they were written once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import read_end_txn
from simulation.findings import Findings
from simulation.ghosts import Batch, LogLike, LogReader, SegmentLike
from simulation.invariants.compaction import COMPACTED_TOPICS
from simulation.invariants.places import PartitionKey, ReplicaLog


class OffsetIndexLike(Protocol):
    """The part of `storage.indexes.OffsetIndex` and `TimeIndex` that is read here."""

    @property
    def entries(self) -> int: ...

    @property
    def is_open(self) -> bool: ...

    def entry(self, slot: int) -> tuple[int, int]: ...


class IndexedSegment(SegmentLike, Protocol):
    """The part of `storage.segment.Segment` that is read here, besides its batches."""

    @property
    def offset_index(self) -> OffsetIndexLike: ...

    @property
    def time_index(self) -> OffsetIndexLike: ...


class AbortedLike(Protocol):
    """The part of `storage.transaction_index.AbortedTransaction` that is read here."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Flushed:
    """The part of a log that was flushed before a power cut."""

    log_start: int
    recovery_point: int
    checksums: dict[int, int]
    """By base offset, of each batch between these."""


class StoragePromises:
    """The promises of all logs of one universe."""

    def __init__(self, findings: Findings, content: Callable[[int, str], bytearray | None]) -> None:
        """`content`: the bytes of a node's file."""
        self._findings = findings
        self._content = content
        self._flushed: dict[tuple[PartitionKey, int], _Flushed] = {}

    # ---- what was flushed

    def power_goes(self, key: PartitionKey, node_id: int, log: ReplicaLog) -> None:
        """The power of a broker is about to be cut; this is a log of it."""
        batches = self._reader(node_id, log).batches(log.log_start_offset, log.recovery_point)
        checksums = {batch.base_offset: crc32(batch.data) for batch in batches}
        self._flushed[key, node_id] = _Flushed(log.log_start_offset, log.recovery_point, checksums)

    def disk_lost(self, node_id: int) -> None:
        for place in [place for place in self._flushed if place[1] == node_id]:
            del self._flushed[place]

    def opened(self, key: PartitionKey, node_id: int, log: ReplicaLog) -> None:
        """A broker has opened a log, and recovered it if need was."""
        flushed = self._flushed.pop((key, node_id), None)
        if flushed is None:
            return
        findings, end = self._findings, log.log_end_offset
        findings.count("flushed logs that came back")
        findings.check(
            end >= flushed.recovery_point,
            lambda: f"{key}: {node_id} had flushed up to {flushed.recovery_point}, and ends at {end} after a power cut",
        )
        if key.topic in COMPACTED_TOPICS:
            return  # a copy that was not in place yet may be by now
        # The new begin of a log whose records were deleted may be lost; then some of them are back.
        start = max(log.log_start_offset, flushed.log_start)
        for batch in self._reader(node_id, log).batches(start, flushed.recovery_point):
            if flushed.checksums.get(batch.base_offset) != crc32(batch.data):
                findings.report(f"{key}: {node_id} had flushed something else than {batch}")

    # ---- indexes

    def check_indexes(self, key: PartitionKey, node_id: int, segments: Iterable[IndexedSegment]) -> None:
        """Hold the indexes of a log to its batches, where they can be read without touching the disk's order of
        things.
        """
        for segment in segments:
            for wrong in _wrong_entries(segment, list(self._batches_of(node_id, segment))):
                self._findings.report(f"{key}: {node_id}: {segment.log_path}: {wrong}")

    def check_aborted(
        self, key: PartitionKey, node_id: int, batches: Iterable[Batch], listed: Iterable[AbortedLike]
    ) -> None:
        """`batches`: the whole log; `listed`: what its aborted index gives of it."""
        found = sorted((each.producer_id, each.first_offset) for each in listed)
        expected = sorted(aborted(batches))
        self._findings.check(
            found == expected,
            lambda: f"{key}: {node_id} lists (producer, offset) {found} as aborted, by its markers it is {expected}",
        )

    # ---- inside

    def _reader(self, node_id: int, log: LogLike) -> LogReader:
        return LogReader(log, lambda path: self._content(node_id, path))

    def _batches_of(self, node_id: int, segment: SegmentLike) -> Iterator[tuple[int, Batch]]:
        """(position, batch)"""
        position = 0
        for batch in self._reader(node_id, _OneSegment(segment)).batches(segment.base_offset, 1 << 62):
            yield position, batch
            position += len(batch.data)


@dataclass(frozen=True, slots=True)
class _OneSegment:
    segment: SegmentLike

    @property
    def log_start_offset(self) -> int:
        return self.segment.base_offset

    @property
    def log_end_offset(self) -> int:
        return 1 << 62

    @property
    def segments(self) -> Iterable[SegmentLike]:
        return (self.segment,)


def _wrong_entries(segment: IndexedSegment, batches: list[tuple[int, Batch]]) -> Iterator[str]:
    index, times = segment.offset_index, segment.time_index
    last_offsets = {position: batch.next_offset - 1 for position, batch in batches}
    if index.is_open:
        for slot in range(index.entries):
            offset, position = index.entry(slot)
            if last_offsets.get(position) != offset:
                yield f"offset index says {offset} at {position}, there it is {last_offsets.get(position)}"
    if times.is_open:
        largest: dict[int, int] = {}
        most = -1
        for _, batch in batches:
            most = max(most, read_header(batch.data).max_timestamp)
            largest[batch.next_offset - 1] = most
        for slot in range(times.entries):
            timestamp, offset = times.entry(slot)
            if largest.get(offset) != timestamp:
                yield f"time index says {timestamp} up to {offset}, there it is {largest.get(offset)}"


def aborted(batches: Iterable[Batch]) -> Iterator[tuple[int, int]]:
    """(producer id, first offset) of each transaction that a marker aborts."""
    began: dict[int, int] = {}
    for batch in batches:
        header = read_header(batch.data)
        if header.is_control:
            marker = read_end_txn(batch.data)
            first = began.pop(header.producer_id, None)
            if marker is not None and not marker.committed and first is not None:
                yield header.producer_id, first
        elif header.is_transactional:
            began.setdefault(header.producer_id, header.base_offset)
