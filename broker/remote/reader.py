"""Shell: reads records, aborted transactions and offsets by time from remote segments (KIP-405).

The lineage of the log decides which segment is read: the one with the offset that a leader of the same epoch wrote.
What the segment has behind the point at which it leaves the log is not returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import trio

from barnabas.broker.remote.index_cache import IndexCache, SegmentReads
from barnabas.broker.remote.segment_store import IndexKind
from barnabas.broker.remote.segment_walk import Found, SegmentWalk
from barnabas.broker.remote.wanted import RemoteRecords, Wanted
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.search import TooLargeToSearch, first_record_at
from barnabas.runtime.object_store import NoSuchObject, StoreError
from barnabas.runtime.steps import in_turns
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.remote.index_bytes import aborted_in, entry_after, offset_at_time, position_of
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment
from barnabas.storage.remote.shared_range import shared_end
from barnabas.storage.segment_list import TimestampedOffset
from barnabas.storage.transaction_index import AbortedTransaction

MOST_BYTES = 8 << 20
"""Most bytes of one read, unless the first batch has more: several responses of this size are in memory at once."""
READ_WITH_HEADERS = 64 << 10
"""If the next entry of the index is not farther away, the batches up to it and the records are read at once."""
CUT_BYTES = 64 << 10
"""Most bytes of a read near the point at which a segment leaves the log: they are searched for it."""
SEGMENTS_IN_A_STEP = 200
_MOST_RELATIVE_OFFSET = 0x7FFF_FFFF


class ReadLog(Protocol):
    """The part of `storage.log.PartitionLog` that is read here."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def local_log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def epochs(self) -> LeaderEpochs: ...

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]: ...


NOTHING = RemoteRecords(b"")


class RemoteReader:
    """Reads one thing after the other for each caller; `broker.remote.reads` bounds how many there are."""

    def __init__(
        self,
        store: SegmentReads,
        segments: Callable[[RemotePartitionKey], PartitionSegments | None],
        indexes: IndexCache,
    ) -> None:
        self._store = store
        self._segments = segments
        self._indexes = indexes

    async def read(self, key: RemotePartitionKey, log: ReadLog, wanted: Wanted) -> RemoteRecords:
        """Raises StoreError; KafkaError: OFFSET_OUT_OF_RANGE if no remote segment has the offset, CORRUPT_MESSAGE,
        UNKNOWN_SERVER_ERROR if this broker does not know the segments yet."""
        segments = self.segments_of(key)
        offset = wanted.offset
        while True:
            segment = self._segment_at(segments, log, offset)
            if segment is None:
                if log.local_log_start_offset <= offset > wanted.offset:
                    return RemoteRecords(self._gap(log, wanted.offset, offset))
                epoch = log.epochs.epoch_for_offset(offset)
                raise OffsetOutOfRange(f"{key}: no remote segment has offset {offset} of leader epoch {epoch}")
            end = shared_end(segment, offset, log.epochs, log.log_end_offset)
            try:
                found = await self._first_batch(segment, offset, wanted.max_bytes)
                if found is not None and found.header.base_offset < end:
                    return await self._records(_Place(log, segments, segment, end), found, wanted)
            except NoSuchObject as error:
                if wanted.offset < log.log_start_offset:
                    raise OffsetOutOfRange(f"{key}: offset {wanted.offset} was deleted") from error
                if self._segment_at(segments, log, offset) in (segment, None):
                    raise
                # Compaction has replaced it meanwhile.
                continue
            # Compaction removed the rest of this segment.
            offset = end

    @staticmethod
    def _gap(log: ReadLog, offset: int, end_offset: int) -> bytes:
        """A batch without records: compaction removed all up to `end_offset`, from which on this broker has the log. A
        reader goes on there."""
        last = min(end_offset - 1, offset + _MOST_RELATIVE_OFFSET)
        epoch = log.epochs.epoch_for_offset(offset)
        return build_batch([], base_offset=offset, last_offset=last, keep_offsets=True, leader_epoch=epoch)

    async def find_time(self, key: RemotePartitionKey, log: ReadLog, timestamp: int) -> TimestampedOffset | None:
        """The first record at or after `timestamp` among those that only remote segments have; None if there is none.
        Raises as `read`."""
        segments, epochs = self.segments_of(key), log.epochs
        offset, seen = log.log_start_offset, 0
        while offset < log.local_log_start_offset:
            segment = self._segment_at(segments, log, offset)
            if segment is None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{key}: no remote segment has offset {offset}")
            end = shared_end(segment, offset, epochs, log.log_end_offset)
            if segment.max_timestamp_ms >= timestamp:
                found = await self._record_at(segment, timestamp, (offset, end))
                if found is not None:
                    return found
            offset, seen = end, seen + 1
            if seen % SEGMENTS_IN_A_STEP == 0:
                await trio.lowlevel.checkpoint()
        return None

    def segments_of(self, key: RemotePartitionKey) -> PartitionSegments:
        """Raises KafkaError if they are not known yet."""
        segments = self._segments(key)
        if segments is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the remote segments of {key} are not known here yet")
        return segments

    def _segment_at(self, segments: PartitionSegments, log: ReadLog, offset: int) -> RemoteSegment | None:
        return segments.segment_for(log.epochs.epoch_for_offset(offset), offset)

    async def _first_batch(self, segment: RemoteSegment, offset: int, max_bytes: int) -> Found | None:
        """The batch with `offset`, or the next one; the bytes behind its header are read, too, if that is cheap."""
        index = await self._indexes.get(segment, IndexKind.OFFSET)
        position = position_of(index, segment.start_offset, offset).position
        after = entry_after(index, segment.start_offset, position)
        upper = segment.size_bytes if after is None else after.position
        walk = SegmentWalk(self._store, segment, position)
        if upper - position <= READ_WITH_HEADERS:
            await walk.read_ahead(upper - position + min(max_bytes, MOST_BYTES))
        while (found := await walk.next()) is not None:
            if found.header.last_offset >= offset:
                return found
        return None

    async def _records(self, place: _Place, found: Found, wanted: Wanted) -> RemoteRecords:
        first_bytes, most = found.header.size_bytes, min(wanted.max_bytes, MOST_BYTES)
        if first_bytes > most:
            if not wanted.at_least_one_batch:
                return NOTHING
            most = first_bytes
        most, cut_offset = await self._before_end(place, found.position, most)
        data = bytes(found.data[:most])
        if len(data) < first_bytes:
            data = await self._store.read(place.segment, found.position, max(most, first_bytes))
        if cut_offset is not None:
            data = _cut(data, cut_offset)
        if not wanted.with_aborted:
            return RemoteRecords(data)
        return RemoteRecords(data, await self._aborted(place, found, len(data)))

    async def _before_end(self, place: _Place, position: int, most: int) -> tuple[int, int | None]:
        """(bytes to read from `position` on, offset of the first batch that must not be returned; None if none is read)
        """
        segment, end = place.segment, place.end
        if end > segment.end_offset:
            return most, None
        index = await self._indexes.get(segment, IndexKind.OFFSET)
        safe = position_of(index, segment.start_offset, end - 1).position - position
        return (min(most, safe), None) if safe > 0 else (min(most, CUT_BYTES), end)

    # -- aborted transactions

    async def _aborted(self, place: _Place, found: Found, size_bytes: int) -> list[AbortedTransaction]:
        """Transactions with records among these bytes that end in this segment, in later ones, or in the local log.
        Some that begin just behind them may be in it."""
        log, segment = place.log, place.segment
        index = await self._indexes.get(segment, IndexKind.OFFSET)
        behind = entry_after(index, segment.start_offset, found.position + size_bytes - 1)
        from_offset, upper = found.header.base_offset, segment.end_offset + 1 if behind is None else behind.offset
        aborted: dict[tuple[int, int], AbortedTransaction] = {}
        current: RemoteSegment | None = segment
        offset, seen = from_offset, 0
        while current is not None:
            end = shared_end(current, offset, log.epochs, log.log_end_offset)
            if not current.transaction_index_is_empty:
                entries = await self._indexes.get(current, IndexKind.TRANSACTION)
                some, is_complete = await in_turns(aborted_in(entries, from_offset, upper, end))
                aborted |= {(each.producer_id, each.first_offset): each for each in some}
                if is_complete:
                    return list(aborted.values())
            offset, seen = end, seen + 1
            if seen % SEGMENTS_IN_A_STEP == 0:
                await trio.lowlevel.checkpoint()
            current = self._segment_at(place.segments, log, offset)
        for each in log.aborted_transactions(from_offset, upper):
            aborted[each.producer_id, each.first_offset] = each
        return list(aborted.values())

    # -- by time

    async def _record_at(
        self, segment: RemoteSegment, timestamp: int, within: tuple[int, int]
    ) -> TimestampedOffset | None:
        """The first record of the segment at or after `timestamp`, from the first offset of `within` on, and before the
        second."""
        from_offset, end = within
        times = await self._indexes.get(segment, IndexKind.TIMESTAMP)
        index = await self._indexes.get(segment, IndexKind.OFFSET)
        start = max(offset_at_time(times, segment.start_offset, timestamp), from_offset)
        walk = SegmentWalk(self._store, segment, position_of(index, segment.start_offset, start).position)
        while (found := await walk.next()) is not None and found.header.base_offset < end:
            header = found.header
            if header.max_timestamp < timestamp or header.last_offset < from_offset:
                continue
            batch = await walk.whole(found)
            try:
                record = first_record_at(batch, header, timestamp, from_offset)
            except TooLargeToSearch:
                # A reader that begins at the batch misses nothing.
                record = (max(header.base_offset, from_offset), header.max_timestamp)
            if record is not None:
                return TimestampedOffset(record[1], record[0], header.partition_leader_epoch)
        return None


class _Place(NamedTuple):
    """Position of a read."""

    log: ReadLog
    segments: PartitionSegments
    segment: RemoteSegment
    end: int
    """The segment and the log are the same up to this offset."""


def _cut(data: bytes, end_offset: int) -> bytes:
    """The whole batches before the first one at `end_offset` or later."""
    size = 0
    for position, header in iterate_batches(data):
        if header.base_offset >= end_offset:
            break
        size = position + header.size_bytes
    return data[:size]


def is_expected(error: Exception) -> bool:
    """True for errors of the store and of the request; others are mistakes of ours."""
    return isinstance(error, KafkaError | StoreError)
