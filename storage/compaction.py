"""Core: selection of the records of a compacted log that are kept.

A record is kept while no later one with its key is known. A tombstone (a key without a value) is kept until the delete
horizon, which the first cleaning wrote into its batch (KIP-534). Records of an aborted transaction are removed at once;
its marker only after its own delete horizon, and so is the marker of a committed transaction without remaining batches.
The last batch of each producer is kept, empty if need be, because it holds the producer's sequence. So is the last
batch of the cleaned range, because it holds the offset.

Where older records are out of reach, in the remote part of a tiered log, tombstones and markers are kept: they get no
horizon, and outlive one that they have.

Nothing is renumbered: a batch that loses records keeps its offsets, sequences, epoch and timestamps, and a batch that
loses none is copied byte by byte. Knows no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.builder import build_batch, build_empty_batch
from barnabas.protocol.records.control import ControlType, control_type
from barnabas.protocol.records.record import (
    SERVED_LIMIT_BYTES,
    SERVED_LIMIT_RECORDS,
    Record,
    decode_in_slices,
    decode_records,
)
from barnabas.runtime.world import Bytes
from barnabas.storage.offset_map import OffsetMap
from barnabas.storage.transaction_index import AbortedTransaction


class LastBatch(NamedTuple):
    """Last batch of a producer according to the log's producer state."""

    last_offset: int
    """Last offset of its last batch with records; -1 if only a marker is left."""
    producer_epoch: int


class Transactions:
    """Tracks the transactions of a log while its batches are processed in order."""

    __slots__ = ("_aborted", "_coming", "_committed", "_seen_from", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction], seen_from: int = 0) -> None:
        """`aborted` are the aborted transactions with records in the range to process. Those that begin before
        `seen_from` may have batches elsewhere.
        """
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._seen_from = seen_from
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer id: the current aborted transaction, and whether a batch of it was seen."""
        self._committed: dict[int, None] = {}
        """Producers with a batch of a transaction that was not aborted."""
        self.kept: list[AbortedTransaction] = []
        """Transactions whose marker followed a batch of theirs: the copy's transaction index must contain them."""

    def _reach(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[-1].first_offset <= offset:
            each = coming.pop()
            self._aborted.setdefault(each.producer_id, (each, each.first_offset < self._seen_from))

    def is_aborted(self, header: BatchHeader) -> bool:
        """True if a data batch is aborted."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed[header.producer_id] = None
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def is_over(self, header: BatchHeader, records: list[Record]) -> bool:
        """True if no batch is left that the marker in this control batch refers to."""
        self._reach(header.last_offset)
        if not records:
            return True
        kind = control_type(records[0])
        if kind is ControlType.ABORT:
            transaction, seen = self._aborted.pop(header.producer_id, (None, False))
            if transaction is not None and seen:
                self.kept.append(transaction)
                return False
            return True
        if kind is ControlType.COMMIT:
            return self._committed.pop(header.producer_id, self) is self
        return False


class Compaction:
    """One pass over a log, from its first batch on, in order."""

    __slots__ = (
        "_delete_horizon_ms",
        "_keeps_deletions",
        "_limit_bytes",
        "_map",
        "_now_ms",
        "_transactions",
        "_upper_offset",
        "last_batches",
        "records_kept",
        "records_read",
    )

    def __init__(  # noqa: PLR0913 - the terms of one pass
        self,
        offsets: OffsetMap,
        transactions: Transactions,
        *,
        upper_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        limit_bytes: int = SERVED_LIMIT_BYTES,
        keeps_deletions: bool = False,
    ) -> None:
        """The pass ends at `upper_offset` at the latest. No batch may exceed `limit_bytes` uncompressed.
        `keeps_deletions`: tombstones and markers stay, since older records may be elsewhere.
        """
        self._limit_bytes = limit_bytes
        self._keeps_deletions = keeps_deletions
        self._map = offsets
        self._transactions = transactions
        self.last_batches: Mapping[int, LastBatch] = {}
        """Last batches by producer id. It may be outdated without harm."""
        self._upper_offset = upper_offset
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms
        self.records_read = 0
        self.records_kept = 0

    def compact(self, header: BatchHeader, batch: memoryview) -> Bytes | None:
        """The part of a complete batch that is kept: `batch` itself, a shorter one, or nothing.

        Raises `CorruptBatch` if its records are unreadable or too many.
        """
        if not header.is_control:
            is_over = False
            if self._transactions.is_aborted(header):
                self.records_read += max(header.records_count, 0)
                return self._without_records(header)
            count, kept = self._last_values(header, batch)
        else:
            kept = decode_records(batch, 0, self._limit_bytes)
            count = len(kept)
            is_over = self._transactions.is_over(header, kept)
            horizon_ms = header.delete_horizon_ms
            if is_over and not self._keeps_deletions and horizon_ms is not None and horizon_ms <= self._now_ms:
                kept = []
        self.records_read += count
        if not kept:
            return self._without_records(header)
        self.records_kept += len(kept)
        horizon_ms = header.delete_horizon_ms
        gets_horizon = (
            horizon_ms is None
            and header.magic >= 2
            and not self._keeps_deletions
            and (is_over or any(r.value is None for r in kept))
        )
        if len(kept) == count and header.magic >= 2 and not gets_horizon:
            return batch
        return _rebuilt(header, kept, self._delete_horizon_ms if gets_horizon else horizon_ms)

    def _last_values(self, header: BatchHeader, batch: memoryview) -> tuple[int, list[Record]]:
        """(number of records, records to keep). Keeps all records behind the map's end, and before it those that the
        map points to; records without a key are never kept.
        """
        latest, find = self._map.latest_offset, self._map.get
        horizon_ms = header.delete_horizon_ms
        tombstones = self._keeps_deletions or horizon_ms is None or self._now_ms < horizon_ms
        count = 0
        kept: list[Record] = []
        for records in decode_in_slices(batch, self._limit_bytes, SERVED_LIMIT_RECORDS):
            count += len(records)
            kept += [
                record
                for record in records
                if record.offset > latest
                or (
                    record.key is not None
                    and record.offset >= find(record.key)
                    and (tombstones or record.value is not None)
                )
            ]
        return count, kept

    def _without_records(self, header: BatchHeader) -> bytes | None:
        if header.next_offset == self._upper_offset or self._is_last_of_producer(header):
            return build_empty_batch(header)
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.last_batches.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _rebuilt(header: BatchHeader, records: list[Record], delete_horizon_ms: int | None) -> bytes:
    """The batch with other records; magic 0 and 1 become magic 2."""
    is_old = header.magic < 2
    return build_batch(
        records,
        base_offset=records[0].offset if is_old else header.base_offset,
        keep_offsets=True,
        last_offset=header.last_offset,
        compression=header.compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time=header.max_timestamp if header.is_log_append_time else None,
        delete_horizon_ms=delete_horizon_ms,
    )


def map_batch(
    offsets: OffsetMap,
    transactions: Transactions,
    from_offset: int,
    header: BatchHeader,
    batch: memoryview,
    limit_bytes: int = SERVED_LIMIT_BYTES,
) -> bool:
    """Add the keys of one complete batch to the map; False once it is full. Raises `CorruptBatch` as `compact` does."""
    if header.is_control:
        transactions.is_over(header, decode_records(batch, 0, limit_bytes))
    elif not transactions.is_aborted(header):
        put = offsets.put
        for records in decode_in_slices(batch, limit_bytes, SERVED_LIMIT_RECORDS):
            for record in records:
                if record.key is not None and record.offset >= from_offset:
                    if offsets.is_full:
                        return False
                    put(record.key, record.offset)
    if header.last_offset >= from_offset:
        offsets.latest_offset = header.last_offset
    return True
