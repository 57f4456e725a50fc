"""Compaction: a cleaner leaves at least the last record of each key, and nothing that was never committed.

Batches keep their place (CR-02 to CR-06): what is left of a batch has its offsets and some of its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import read_end_txn
from barnabas.protocol.records.record import Record, decode_records
from simulation.ghosts import Batch
from workloads.table import TOPIC as TABLE_TOPIC

COMPACTED_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, TABLE_TOPIC})


def is_rest(left: Batch, committed: Batch) -> bool:
    """True if compaction may have made `left` of `committed`."""
    if left[:3] != committed[:3]:
        return False
    ours, theirs = read_header(left.data), read_header(committed.data)
    if (ours.producer_id, ours.producer_epoch, ours.base_sequence, ours.is_control, ours.is_transactional) != (
        theirs.producer_id,
        theirs.producer_epoch,
        theirs.base_sequence,
        theirs.is_control,
        theirs.is_transactional,
    ):
        return False
    committed_records = {record.offset: record for record in decode_records(committed.data)}
    for record in decode_records(left.data):
        known = committed_records.get(record.offset)
        if known is None or (known.key, known.value) != (record.key, record.value):
            return False
    return True


def last_of_each_key(batches: Iterable[Batch]) -> dict[bytes, Record]:
    """The record that holds for each key; those of transactions only if they were committed."""
    last: dict[bytes, Record] = {}
    for record in _effective(batches):
        if record.key is not None and (record.key not in last or last[record.key].offset < record.offset):
            last[record.key] = record
    return last


def _effective(batches: Iterable[Batch]) -> Iterator[Record]:
    """Records that readers of committed ones are given; those of a transaction where its marker is."""
    open_transactions: dict[int, list[Record]] = {}
    for batch in batches:
        header = read_header(batch.data)
        if header.is_control:
            marker = read_end_txn(batch.data, 0)
            records = open_transactions.pop(header.producer_id, [])
            if marker is not None and marker.committed:
                yield from records
        elif header.is_transactional:
            open_transactions.setdefault(header.producer_id, []).extend(decode_records(batch.data))
        else:
            yield from decode_records(batch.data)


def came_back(committed: Iterable[Batch], left: Iterable[Batch]) -> Iterator[Record]:
    """Records of keys that were deleted, where the tombstone is gone. What was aborted is given to nobody."""
    batches = list(committed)
    kept = [record for batch in left for record in decode_records(batch.data)]
    offsets = {record.offset for record in kept}
    deleted = {key: record.offset for key, record in last_of_each_key(batches).items() if record.value is None}
    given = {record.offset for record in _effective(batches)}
    for record in kept:
        tombstone = None if record.key is None else deleted.get(record.key)
        if tombstone is not None and tombstone not in offsets and record.offset in given:
            yield record


def missing(committed: Iterable[Batch], left: Iterable[Batch]) -> Iterator[Record]:
    """Records that are the last of their key and are missing."""
    kept = {record.offset for batch in left for record in decode_records(batch.data)}
    for record in last_of_each_key(committed).values():
        if record.value is not None and record.offset not in kept:
            yield record
