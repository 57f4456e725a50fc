"""Helpers for tests of compaction: keyed records, transactions, and complete cleanings."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import BatchOptions, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.settings.topic import TopicConfig
from barnabas.storage.cleaner import CleanerSettings, LogCleaning, extent_of
from barnabas.storage.cleaning import Event
from barnabas.storage.log import PartitionLog
from tests.storage.rig import NOW_MS, all_batches, append

DAY_MS = 24 * 60 * 60 * 1000
RETENTION_MS = DAY_MS
"""Default of delete.retention.ms, for tombstones and markers."""


def compacted(**changes: object) -> TopicConfig:
    """Segments of a few batches, cleaned as soon as anything is dirty."""
    values: dict[str, object] = {
        "segment_bytes": 400,
        "index_interval_bytes": 1,
        "segment_index_bytes": 4096,
        "cleanup_policy": frozenset(["compact"]),
        "min_cleanable_dirty_ratio": 0.0,
    }
    return TopicConfig(**(values | changes))  # type: ignore[arg-type]


def keyed(*pairs: tuple[str, str | None], timestamp: int = NOW_MS, options: BatchOptions | None = None) -> bytes:
    """A batch of (key, value); None as value makes a tombstone."""
    made = [
        Record(0, timestamp + place, key.encode(), None if value is None else value.encode())
        for place, (key, value) in enumerate(pairs)
    ]
    return build_batch(made, **(options or {}))


def put(log: PartitionLog, *pairs: tuple[str, str | None], **options: object) -> int:
    """Append one batch and replicate it at once; returns its first offset."""
    result = append(log, keyed(*pairs, options=options))  # type: ignore[arg-type]
    log.set_high_watermark(log.log_end_offset)
    return result.first_offset


def put_in_transaction(log: PartitionLog, producer_id: int, sequence: int, *pairs: tuple[str, str | None]) -> int:
    return put(log, *pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


def end_transaction(log: PartitionLog, producer_id: int, *, commit: bool) -> int:
    result = append(log, build_end_txn_batch(EndTxn(commit, 0), producer_id, 0, NOW_MS))
    log.set_high_watermark(log.log_end_offset)
    return result.first_offset


def close_segments(log: PartitionLog) -> None:
    """Everything so far is in closed segments and durable, hence cleanable."""
    log.roll(NOW_MS)
    log.flush()


def clean(log: PartitionLog, now_ms: int = NOW_MS, settings: CleanerSettings | None = None) -> LogCleaning:
    """One complete cleaning, whatever the dirty ratio."""
    log.cleaning.move(Event.BEGIN)
    cleaning = LogCleaning(log, extent_of(log, now_ms), settings or CleanerSettings(), now_ms)
    for piece in cleaning.slices():
        piece()
    log.cleaning.finish()
    return cleaning


def records_of(log: PartitionLog) -> list[Record]:
    """All remaining records, without markers."""
    return [
        record for batch in all_batches(log) if not read_header(batch).is_control for record in decode_records(batch)
    ]


def committed(log: PartitionLog) -> list[Record]:
    """Records that a read_committed consumer gets from the start on."""
    aborted = log.aborted_transactions(log.log_start_offset, log.last_stable_offset)
    aborted.sort(key=lambda each: each.first_offset)
    open_aborts: set[int] = set()
    seen = []
    for batch in all_batches(log):
        header = read_header(batch)
        if header.base_offset >= log.last_stable_offset:
            break
        while aborted and aborted[0].first_offset <= header.last_offset:
            open_aborts.add(aborted.pop(0).producer_id)
        if header.is_control:
            open_aborts.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborts):
            seen += decode_records(batch)
    return seen


def table(records: Sequence[Record]) -> dict[bytes, bytes]:
    """The table that a reader builds from these records."""
    values: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


def values(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    """(offset, key, value) of all records."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in records_of(log)
    ]
