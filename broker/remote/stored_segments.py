"""Shell: describes a segment by its objects alone, for a metadata topic that has lost its record.

The names of the objects have partition, topic id, segment id and start offset. The leader epochs are an object of their
own. End offset and largest timestamp are at the end of the log and of the time index, so a segment costs four short
reads, however large it is.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.broker.remote.segment_store import IndexKind, RemoteSegmentStore, StoredSegment
from barnabas.broker.remote.segment_walk import Found, SegmentWalk
from barnabas.protocol.records.batch import CorruptBatch, crc_is_valid
from barnabas.storage.checkpoints import MalformedCheckpoint, parse_epochs
from barnabas.storage.indexes import CorruptIndex
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.names import LOG_SUFFIX
from barnabas.storage.remote.index_bytes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    last_position,
    last_timestamp,
)
from barnabas.storage.remote.lineage import epochs_between
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment, SegmentState

NO_BROKER = -1
_TAIL_BYTES = 64 << 10
"""More than lies behind the last entry of an offset index, usually."""
_ENDLESS = 2**63 - 1

_NEEDED = (LOG_SUFFIX, *(kind.value for kind in IndexKind if kind is not IndexKind.TRANSACTION))


class NotWhole(Exception):
    """The objects are no whole segment; the message is one line."""


async def described(
    store: RemoteSegmentStore, key: RemotePartitionKey, stored: StoredSegment, now_ms: int
) -> RemoteSegment:
    """The segment, as its leader announced it (COPY_SEGMENT_STARTED). Raises `NotWhole`, StoreError."""
    objects = stored.objects
    missing = [suffix for suffix in _NEEDED if suffix not in objects]
    if missing:
        raise NotWhole(f"{', '.join(missing)} is missing: it was being copied or deleted")
    transactions = objects.get(IndexKind.TRANSACTION.value)
    segment = RemoteSegment(
        key=key,
        segment_id=stored.segment_id,
        start_offset=stored.start_offset,
        end_offset=_ENDLESS,
        max_timestamp_ms=-1,
        broker_id=NO_BROKER,
        event_timestamp_ms=now_ms,
        size_bytes=objects[LOG_SUFFIX].size_bytes,
        state=SegmentState.COPY_SEGMENT_STARTED,
        leader_epochs=(),
        transaction_index_is_empty=transactions is None or not transactions.size_bytes,
    )
    try:
        return await _measured(store, segment, stored)
    except (CorruptBatch, CorruptIndex, MalformedCheckpoint) as error:
        raise NotWhole(str(error)) from None


async def _measured(store: RemoteSegmentStore, segment: RemoteSegment, stored: StoredSegment) -> RemoteSegment:
    """With the end, the timestamp and the epochs that the objects have."""
    sizes = {kind: stored.objects[kind.value].size_bytes for kind in (IndexKind.OFFSET, IndexKind.TIMESTAMP)}
    entry = await _last_entry(store, segment, IndexKind.OFFSET, sizes[IndexKind.OFFSET], OFFSET_ENTRY_BYTES)
    position = last_position(entry, segment.start_offset)
    entry = await _last_entry(store, segment, IndexKind.TIMESTAMP, sizes[IndexKind.TIMESTAMP], TIME_ENTRY_BYTES)
    last, newest_ms = await _last_batch(store, segment, position)
    max_timestamp_ms = max(last_timestamp(entry), newest_ms)
    end_offset = last.header.last_offset
    data = await store.read_index(segment, IndexKind.LEADER_EPOCH)
    epochs = LeaderEpochs(parse_epochs(data, "its leader epochs"))
    if epochs.epoch_for_offset(end_offset) != last.header.partition_leader_epoch:
        raise NotWhole(
            f"its leader epochs are {epochs.entries()}, and its last record, at offset {end_offset}, has epoch "
            f"{last.header.partition_leader_epoch}"
        )
    return replace(
        segment,
        end_offset=end_offset,
        max_timestamp_ms=max_timestamp_ms if max_timestamp_ms >= 0 else stored.modified_ms,
        leader_epochs=epochs_between(epochs.entries(), segment.start_offset, end_offset + 1),
    )


async def _last_entry(
    store: RemoteSegmentStore, segment: RemoteSegment, kind: IndexKind, size_bytes: int, entry_bytes: int
) -> bytes:
    """Empty if the index is."""
    if size_bytes % entry_bytes:
        raise CorruptIndex(f"{size_bytes} bytes of its {kind.value} are not a multiple of {entry_bytes}")
    return await store.read_index(segment, kind, size_bytes - entry_bytes) if size_bytes else b""


async def _last_batch(store: RemoteSegmentStore, segment: RemoteSegment, position: int) -> tuple[Found, int]:
    """The last batch, found from a batch at `position` on, and the largest timestamp from there on."""
    walk = SegmentWalk(store, segment, position)
    await walk.read_ahead(_TAIL_BYTES)
    last, newest_ms = None, -1
    while (found := await walk.next()) is not None:
        last, newest_ms = found, max(newest_ms, found.header.max_timestamp)
    if last is None:
        raise NotWhole(f"it has no batch at byte {position} of {segment.size_bytes}")
    if not crc_is_valid(await walk.whole(last), 0, last.header):
        raise NotWhole(f"the checksum of its last batch, at byte {last.position}, is wrong")
    return last, newest_ms
