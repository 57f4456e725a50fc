"""The transactions in a partition's log: which were aborted, and up to where none is open.

Determined from the files alone, as a broker does when it starts: below a producer snapshot by the segments' transaction
indexes, from the snapshot on by the batch headers. So index entries that a running broker still holds in memory are not
missed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.log_files import read_heads, segment_files
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.control import read_end_txn
from barnabas.storage.indexes import CorruptIndex
from barnabas.storage.names import SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, parse_offset_file_name
from barnabas.storage.producer_snapshot_format import CorruptSnapshot, decode_snapshot
from barnabas.storage.producers import NO_OFFSET
from barnabas.storage.transaction_index import AbortedTransaction, read_entries

AbortedRange = tuple[int, int, int]
"""Producer id, first offset, offset of the marker."""


@dataclass(frozen=True, slots=True)
class LogTransactions:
    """The transactions of one log below an offset."""

    last_stable_offset: int
    """No transaction is open below it. At most the requested offset."""
    aborted: tuple[AbortedRange, ...]
    """In the order of the markers' offsets."""


@dataclass(slots=True)
class AbortedBatches:
    """Looks up whether a batch belongs to an aborted transaction."""

    ranges: Sequence[AbortedRange]
    _by_producer: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for producer_id, first_offset, last_offset in self.ranges:
            self._by_producer.setdefault(producer_id, []).append((first_offset, last_offset))
        for ranges in self._by_producer.values():
            ranges.sort()

    def has(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        ranges = self._by_producer.get(header.producer_id)
        if ranges is None:
            return False
        slot = bisect_right(ranges, (header.base_offset, 1 << 62)) - 1
        return slot >= 0 and header.base_offset <= ranges[slot][1]


def find_transactions(directory: Path, until_offset: int, durable_offset: int) -> LogTransactions:
    """The transactions of the log in `directory`. Indexes and snapshots are trusted below `durable_offset`, its
    recovery point."""
    start, open_since = _snapshot(directory, min(until_offset, durable_offset))
    aborted = [entry for entry in _indexed(directory, start) if entry.last_offset < min(start, until_offset)]
    ranges: list[AbortedRange] = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted]
    for head in read_heads(directory, start, until_offset):
        header = head.header
        if not header.is_transactional or header.last_offset < start or header.last_offset >= until_offset:
            continue
        if not header.is_control:
            open_since.setdefault(header.producer_id, header.base_offset)
            continue
        marker = read_end_txn(head.whole())
        first_offset = open_since.pop(header.producer_id, None)
        if marker is not None and not marker.committed and first_offset is not None:
            ranges.append((header.producer_id, first_offset, header.base_offset))
    return LogTransactions(min([until_offset, *open_since.values()]), tuple(ranges))


def _snapshot(directory: Path, up_to_offset: int) -> tuple[int, dict[int, int]]:
    """(offset, producer id to the first offset of its open transaction) of the newest valid snapshot at or before an
    offset; without a snapshot, the log's first offset and no transactions."""
    named = [(parse_offset_file_name(path.name), path) for path in directory.glob(f"*{SNAPSHOT_SUFFIX}")]
    snapshots = [(name[0], path) for name, path in named if name is not None and name[1] == SNAPSHOT_SUFFIX]
    for offset, path in sorted(snapshots, reverse=True):
        if offset > up_to_offset:
            continue
        try:
            producers = decode_snapshot(path.read_bytes())
        except (CorruptSnapshot, FileNotFoundError):
            continue
        return offset, {
            producer.producer_id: producer.transaction_first_offset
            for producer in producers
            if producer.transaction_first_offset != NO_OFFSET
        }
    segments = segment_files(directory)
    return (segments[0].base_offset if segments else 0), {}


def _indexed(directory: Path, before_offset: int) -> list[AbortedTransaction]:
    """The transaction index entries of all segments that begin before an offset."""
    found = []
    for path in sorted(directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}")):
        named = parse_offset_file_name(path.name)
        if named is None or named[1] != TRANSACTION_INDEX_SUFFIX or named[0] >= before_offset:
            continue
        try:
            found += list(read_entries(path.read_bytes(), str(path)))
        except FileNotFoundError:
            continue
        except CorruptIndex as error:
            raise PipelineError(f"{error}; read another replica, or let its broker rebuild the index") from None
    return found
