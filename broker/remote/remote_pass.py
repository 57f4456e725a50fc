"""Shell: one pass of compaction over the remote segments of a log, for its leader.

The dirty segments are read once for the map of their keys, then all segments in order. Each is fetched in pieces, and a
worker compacts the batches of a piece (`storage.compaction`, as on a disk). What is left of a group goes to a scratch
file, then to the store under a new segment id, and replaces the group by its last record in the metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import trio

from barnabas.broker.remote.copier import QUOTA_CHECK_MS
from barnabas.broker.remote.ports import RemotePorts
from barnabas.broker.remote.segment_store import IndexKind, SegmentFiles
from barnabas.broker.remote.segment_walk import SegmentWalk
from barnabas.broker.remote.tended import LeadershipEnded, Tended
from barnabas.protocol.records.record import SERVED_LIMIT_BYTES
from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import FileRegion
from barnabas.storage.cleaning import Throttle
from barnabas.storage.compaction import Compaction, Transactions, map_batch
from barnabas.storage.offset_map import OffsetMap
from barnabas.storage.remote.compacted_copy import CompactedCopy
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.recleaning import LogState, Row, RowPart, cleaned_to_in, epochs_of, groups_of
from barnabas.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate
from barnabas.storage.rest_of_group import Batches, RestOfGroup, check_batch
from barnabas.storage.transaction_index import AbortedTransaction, read_entries

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
"""Bytes of one request to the store."""
SLICE_BYTES = 256 << 10
SLICE_RECORDS = 400
"""Records of one slice of work, which takes one or two milliseconds."""
_BATCH_IN_RECORDS = 4
"""Overhead of a batch, expressed in records."""


class CannotReclean(Exception):
    """This log can never be compacted with these settings; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Work:
    tended: Tended
    segments: PartitionSegments
    row: Row
    epoch: int
    """In which this broker leads."""


class RemotePass:
    """Raises StoreError, KafkaError, OSError, CorruptBatch, `LeadershipEnded`, `CannotReclean`."""

    def __init__(self, ports: RemotePorts, throttle: Throttle, work: Work) -> None:
        self._ports = ports
        self._throttle = throttle
        self._tended = work.tended
        self._segments = work.segments
        self._row = work.row
        self._epoch = work.epoch
        self._map = self._empty_map()
        self._replaced_bytes = self._stored_bytes = 0

    async def run(self) -> None:
        row, tended = self._row, self._tended
        await self._map_keys()
        transactions = Transactions(await self._aborted(row.parts))
        for group in groups_of(row.parts, tended.partition.log.config.segment_bytes):
            if group[-1].end_offset > self._map.latest_offset + 1:
                # The map is full: the next pass goes on from here.
                break
            await self._clean(group, transactions)
        text = "%s: what is remote is clean up to offset %d; %d bytes became %d"
        log.info(text, tended, self._map.latest_offset + 1, self._replaced_bytes, self._stored_bytes)

    def _empty_map(self) -> OffsetMap:
        settings, row = self._ports.settings(), self._row
        memory_bytes = settings.log_cleaner_dedupe_buffer_size // max(settings.log_cleaner_threads, 1)
        keys = row.end_offset - row.cleaned_to
        try:
            offsets = OffsetMap(memory_bytes, keys, settings.log_cleaner_io_buffer_load_factor)
        except ValueError as error:
            raise CannotReclean(str(error)) from None
        offsets.latest_offset = row.cleaned_to - 1
        return offsets

    @property
    def _limit_bytes(self) -> int:
        return max(SERVED_LIMIT_BYTES, self._tended.partition.log.config.max_message_bytes)

    def _check(self) -> None:
        """Raises `LeadershipEnded`."""
        self._tended.check_leads(self._epoch)
        config = self._tended.partition.log.config
        if not (config.compacts and config.copies_to_remote):
            raise LeadershipEnded(f"{self._tended.partition} is not compacted remotely any longer")

    # -- reading

    async def _slice(self, walk: SegmentWalk, end_offset: int) -> Batches:
        """The next batches before `end_offset`; none at the end. Keeps to the cleaner's rate."""
        batches: Batches = []
        records = size_bytes = 0
        while records < SLICE_RECORDS and size_bytes < SLICE_BYTES:
            found = await walk.next()
            if found is None or found.header.base_offset >= end_offset:
                break
            batch = await walk.whole(found)
            batches.append((found.header, batch))
            records += found.header.records_count + _BATCH_IN_RECORDS
            size_bytes += len(batch)
        limit = self._ports.settings().log_cleaner_io_max_bytes_per_second
        wait_ms = self._throttle.moved(size_bytes, limit, self._ports.world.monotonic.now_ms())
        if wait_ms > 0:
            await trio.sleep(wait_ms / 1000)
        self._check()
        return batches

    def _walk(self, part: RowPart) -> SegmentWalk:
        return SegmentWalk(self._ports.store, part.segment, 0, PIECE_BYTES)

    async def _aborted(self, parts: Sequence[RowPart]) -> list[AbortedTransaction]:
        """Aborted transactions with records in these segments, wherever their markers are."""
        found: dict[tuple[int, int], AbortedTransaction] = {}
        for part in parts:
            if not part.segment.transaction_index_is_empty:
                data = await self._ports.store.read_index(part.segment, IndexKind.TRANSACTION)
                entries = await self._ports.world.run_blocking(partial(_entries, data, str(part.segment)))
                found |= {(each.producer_id, each.first_offset): each for each in entries}
        first, end = parts[0].segment.start_offset, parts[-1].end_offset
        for each in self._tended.partition.log.aborted_transactions(first, end):
            found[each.producer_id, each.first_offset] = each
        return list(found.values())

    # -- the map

    async def _map_keys(self) -> None:
        dirty = self._row.dirty_parts
        transactions = Transactions(await self._aborted(dirty))
        for part in dirty:
            walk = self._walk(part)
            while batches := await self._slice(walk, part.end_offset):
                work = partial(self._map_slice, transactions, batches)
                if not await self._ports.world.run_blocking(work):
                    return
            self._map.latest_offset = part.end_offset - 1

    def _map_slice(self, transactions: Transactions, batches: Batches) -> bool:
        """False once the map is full."""
        for header, batch in batches:
            check_batch(header, batch)
            whole = memoryview(batch)
            if not map_batch(self._map, transactions, self._row.cleaned_to, header, whole, self._limit_bytes):
                return False
        return True

    # -- one group

    async def _clean(self, group: Sequence[RowPart], transactions: Transactions) -> None:
        world, partition_log = self._ports.world, self._tended.partition.log
        # Not before the groups before this one were replaced: from now on nobody begins to read what they had.
        now_ms = world.wall_clock.now_ms()
        compaction = Compaction(
            self._map,
            transactions,
            upper_offset=self._row.end_offset,
            now_ms=now_ms,
            delete_retention_ms=partition_log.config.delete_retention_ms,
            limit_bytes=self._limit_bytes,
        )
        first = group[0].segment.start_offset
        scratch = await world.run_blocking(partial(partition_log.begin_scratch, first, now_ms))
        rest = RestOfGroup(scratch, compaction)
        try:
            rest.segment.copied_from_ms = max(part.segment.max_timestamp_ms for part in group)
            for part in group:
                walk = self._walk(part)
                while batches := await self._slice(walk, part.end_offset):
                    interval_bytes = partition_log.config.index_interval_bytes
                    await world.run_blocking(partial(rest.add, batches, interval_bytes))
                    world.fault_point("remote.reclean.slice")
            for each in transactions.kept:
                rest.segment.aborted.append(each)
            transactions.kept.clear()
            if rest.is_changed or len(group) > 1:
                await self._replace(group, rest)
            else:
                await self._note_clean(group[0].segment)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await self._remove(rest)

    async def _remove(self, rest: RestOfGroup) -> None:
        try:
            await self._ports.world.run_blocking(rest.segment.remove_files)
        except OSError as error:
            # The next start removes what is left.
            log.warning("%s: an unneeded scratch file could not be removed: %s", self._tended, error)

    def _cleaned_to(self, group: Sequence[RowPart]) -> int:
        partition_log = self._tended.partition.log
        state = LogState(partition_log.epochs, partition_log.log_start_offset, partition_log.log_end_offset)
        return max(self._map.latest_offset + 1, min(cleaned_to_in(part.segment, state) for part in group))

    async def _note_clean(self, segment: RemoteSegment) -> None:
        """It has nothing to remove: only what it says of itself changes."""
        self._check()
        copy = CompactedCopy(self._epoch, self._cleaned_to([RowPart(segment, segment.end_offset + 1)]))
        await self._publish(segment.segment_id, copy)

    async def _publish(self, segment_id: bytes, copy: CompactedCopy) -> None:
        now_ms = self._ports.world.wall_clock.now_ms()
        state, node_id = SegmentState.COPY_SEGMENT_FINISHED, self._ports.node_id
        update = SegmentUpdate(self._tended.key, segment_id, now_ms, state, node_id, copy.encode())
        await self._ports.metadata.publish(update)

    async def _replace(self, group: Sequence[RowPart], rest: RestOfGroup) -> None:
        ports, tended = self._ports, self._tended
        files = await self._files_of(group[-1].segment, rest)
        copy = CompactedCopy(self._epoch, self._cleaned_to(group))
        segment = RemoteSegment(
            key=tended.key,
            segment_id=random_uuid(ports.world.chance),
            start_offset=group[0].segment.start_offset,
            end_offset=group[-1].segment.end_offset,
            max_timestamp_ms=rest.segment.largest_timestamp(),
            broker_id=ports.node_id,
            event_timestamp_ms=ports.world.wall_clock.now_ms(),
            size_bytes=files.log.count,
            state=SegmentState.COPY_SEGMENT_STARTED,
            leader_epochs=epochs_of(group),
            custom_metadata=copy.encode(),
            transaction_index_is_empty=files.transaction_index is None,
        )
        await self._wait_for_quota(segment.size_bytes)
        self._check()
        tended.replacement = segment.segment_id
        await ports.metadata.publish(segment)
        ports.world.fault_point("remote.reclean.started")
        self._check()
        await ports.store.copy(segment, files)
        ports.world.fault_point("remote.reclean.stored")
        self._check_unchanged(group)
        await self._publish(segment.segment_id, copy)
        ports.world.fault_point("remote.reclean.finished")
        tended.replacement = None
        before = sum(part.segment.size_bytes for part in group)
        ports.traffic.replaced_bytes[tended.key.topic] += before
        ports.traffic.replacing_bytes[tended.key.topic] += segment.size_bytes
        self._replaced_bytes += before
        self._stored_bytes += segment.size_bytes
        offsets = (segment.start_offset, segment.end_offset)
        log.info("%s: offsets %d to %d were compacted: %d bytes became %d", tended, *offsets, before, files.log.count)

    def _check_unchanged(self, group: Sequence[RowPart]) -> None:
        """Raises `LeadershipEnded` also if a segment of the group was deleted or replaced meanwhile."""
        self._check()
        for part in group:
            if not self._segments.is_readable(part.segment):
                raise LeadershipEnded(f"{part.segment} is read no longer")

    async def _wait_for_quota(self, size_bytes: int) -> None:
        ports = self._ports
        while ports.copy_quota.is_exceeded(ports.world.monotonic.now_ms()):
            ports.traffic.throttled_ms += QUOTA_CHECK_MS
            await trio.sleep(QUOTA_CHECK_MS / 1000)
        ports.copy_quota.record(size_bytes, ports.world.monotonic.now_ms())

    async def _files_of(self, last: RemoteSegment, rest: RestOfGroup) -> SegmentFiles:
        """The objects of the new segment, which ends where `last` does: producers and epochs are the same there."""
        store = self._ports.store
        offset_index, time_index, transaction_index = await self._ports.world.run_blocking(rest.seal)
        return SegmentFiles(
            FileRegion(rest.segment.log_file(), 0, rest.segment.size_bytes),
            offset_index,
            time_index,
            transaction_index,
            await store.read_index(last, IndexKind.PRODUCER_SNAPSHOT),
            await store.read_index(last, IndexKind.LEADER_EPOCH),
        )


def _entries(data: bytes, name: str) -> list[AbortedTransaction]:
    return list(read_entries(data, name))
