"""Cleans one log: maps its keys to their last offsets, and copies its segments without superseded records.

Slow work is divided into slices, callables that may run outside the event loop. They only look at closed segments,
through files of their own, so the log can be read and written meanwhile. Between two slices the cleaner checks that the
log still is what it read. Each group of segments is replaced as soon as it is copied (`storage.segment_swaps`); later
groups are cleaned with the same map.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, CorruptBatch, crc_is_valid, read_header
from barnabas.protocol.records.record import SERVED_LIMIT_BYTES
from barnabas.runtime.world import Disk
from barnabas.storage.cleaning import Backlog, Extent, Phase, find_first_dirty_offset, measure, next_group
from barnabas.storage.compaction import Compaction, LastBatch, Transactions, map_batch
from barnabas.storage.log import PartitionLog
from barnabas.storage.offset_map import OffsetMap
from barnabas.storage.segment import AppendedBatch, Segment
from barnabas.storage.segment_swaps import SegmentSwap
from barnabas.storage.transaction_index import AbortedTransaction

_log = logging.getLogger(__name__)

Slice = Callable[[], int]
"""Returns the number of bytes read and written."""

_MAX_SEGMENT_BYTES = 0x7FFF_FFFF
_SLICE_RECORDS = 400
"""Records per slice, which takes one or two milliseconds; then the event loop runs."""
_BATCH_IN_RECORDS = 4
"""Overhead of a batch, expressed in records."""


class CleaningAborted(Exception):
    """The log was truncated or deleted, its disk failed, it is no longer compacted, retention removed what was being
    copied, or the disk is too full to begin.
    """


class CannotClean(Exception):
    """This log can never be cleaned; the message has the reason."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Resources that one cleaning may use."""

    dedupe_buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    slice_bytes: int = 256 << 10


def extent_of(log: PartitionLog, now_ms: int) -> Extent:
    """Dirtiness of a log. Raises OSError, `CorruptBatch`."""
    first_dirty_offset = find_first_dirty_offset(log.cleaned_to, log.local_log_start_offset, log.log_end_offset)
    # Recovery treats everything behind the recovery point as appended without gaps.
    limit_offset = min(log.last_stable_offset, log.recovery_point)
    extent = measure(log.segments, first_dirty_offset, limit_offset, log.config, now_ms)
    return extent._replace(is_wanted=first_dirty_offset < log.clean_wanted_to <= extent.end_offset)


def dirtiest(
    logs: Iterable[PartitionLog], now_ms: int, backlog: Backlog | None = None
) -> tuple[PartitionLog, Extent] | None:
    """The log to clean next; None if none is worth it. Fills `backlog`."""
    best: tuple[PartitionLog, Extent] | None = None
    backlog = backlog or Backlog()
    for log in logs:
        if not log.config.compacts or len(log.segments) < 2 or log.failure is not None:
            continue
        if log.cleaning.phase is not Phase.IDLE or log.cleaning.problem is not None:
            continue
        try:
            extent = extent_of(log, now_ms)
        except (CorruptBatch, OSError) as error:
            _log.error("%s is not cleaned: %s", log, error)
            log.cleaning.problem = str(error)
            continue
        if extent.dirty_bytes:
            backlog.dirty_ratio = max(backlog.dirty_ratio, extent.dirty_ratio)
            backlog.overdue_ms = max(backlog.overdue_ms, extent.overdue_ms)
        if extent.is_worth_it(log.config) and (best is None or extent.dirty_ratio > best[1].dirty_ratio):
            best = log, extent
    return best


class LogCleaning:
    """One cleaning of one log, whose state is already cleaning. The results of `slices` are run one after the other;
    when it ends, the last one has run.
    """

    def __init__(self, log: PartitionLog, extent: Extent, settings: CleanerSettings, now_ms: int) -> None:
        self._log = log
        self._extent = extent
        self._settings = settings
        self._now_ms = now_ms
        self._map: OffsetMap | None = None
        self._compaction: Compaction | None = None
        self._copy: Segment | None = None
        """A copy in progress, not swapped in yet."""
        self._is_changed = False
        """The copy differs from the original segments."""
        self.bytes_before = 0
        self.bytes_after = 0

    def slices(self) -> Generator[Slice, None, None]:
        """Raises `CleaningAborted`, `CannotClean`; the slices raise OSError and `CorruptBatch`."""
        swap = self._log.swaps.unfinished
        if swap is not None:
            # The disk was full at the last attempt.
            yield from self._finish(swap)
            self._check_wanted()
        yield from self._map_keys()
        yield from self._copy_segments()
        assert self._map is not None
        self._log.cleaned_to = self._map.latest_offset + 1

    def discard(self) -> None:
        """Remove an unfinished copy. Raises OSError."""
        if self._copy is not None:
            self._copy.remove_files()
            self._copy = None

    @property
    def records_read(self) -> int:
        return self._compaction.records_read if self._compaction is not None else 0

    @property
    def records_kept(self) -> int:
        return self._compaction.records_kept if self._compaction is not None else 0

    @property
    def map_utilization(self) -> float:
        return self._map.utilization if self._map is not None else 0.0

    def _check_wanted(self) -> None:
        log = self._log
        if log.cleaning.phase is not Phase.CLEANING or log.failure is not None or not log.config.compacts:
            raise CleaningAborted(f"{log} was truncated or deleted, lost its disk, or is no longer compacted")

    def _closed_segments(self, from_offset: int, end_offset: int) -> list[Segment]:
        """Closed segments that end after `from_offset` and begin before `end_offset`."""
        segments = self._log.segments
        return [
            segment
            for segment, following in pairwise(segments)
            if following.base_offset > from_offset and segment.base_offset < end_offset
        ]

    def _read(self, segment: Segment, position: int = 0) -> _Reader:
        segments = self._log.segments
        for place, each in enumerate(segments[:-1]):
            if each is segment:
                return _Reader(self._log.disk, segment, position, segments[place + 1].base_offset, self._settings)
        raise CleaningAborted(f"{self._log}: retention deleted {segment}")

    def _aborted(self, from_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records here, wherever their markers are."""
        return [
            each
            for segment in self._log.segments
            for each in segment.aborted
            if each.last_offset >= from_offset and each.first_offset < end_offset
        ]

    @property
    def _limit_bytes(self) -> int:
        """Maximum uncompressed size of a batch; leaders refuse larger ones."""
        return max(SERVED_LIMIT_BYTES, self._log.config.max_message_bytes)

    # -- mapping keys

    def _map_keys(self) -> Iterator[Slice]:
        first_dirty, end = self._extent.first_dirty_offset, self._extent.end_offset
        settings = self._settings
        try:
            offsets = self._map = OffsetMap(settings.dedupe_buffer_bytes, end - first_dirty, settings.load_factor)
        except ValueError as error:
            raise CannotClean(str(error)) from None
        offsets.latest_offset = first_dirty - 1
        transactions = Transactions(self._aborted(first_dirty, end))
        reached = first_dirty
        # Looked up one by one, because retention may remove some meanwhile.
        while segments := self._closed_segments(reached, end):
            segment = segments[0]
            position = segment.offset_index.lookup(reached).position if segment.base_offset < reached else 0
            reader = self._read(segment, position)
            try:
                while not reader.is_done:
                    yield partial(self._map_slice, reader, transactions)
                    self._check_wanted()
            finally:
                reader.close()
            if reader.is_cut_short:
                break
            # Earlier cleanings may have removed the last records of the segment.
            reached = reader.end_offset
            offsets.latest_offset = reached - 1

    def _map_slice(self, reader: _Reader, transactions: Transactions) -> int:
        assert self._map is not None
        before = reader.position
        for header, batch in reader.next_batches():
            first_dirty = self._extent.first_dirty_offset
            if not map_batch(self._map, transactions, first_dirty, header, batch, self._limit_bytes):
                reader.cut_short()
        return reader.position - before

    # -- copying

    def _copy_segments(self) -> Iterator[Slice]:
        assert self._map is not None
        log, upper_offset = self._log, self._extent.end_offset
        end_offset = self._map.latest_offset + 1
        # Also on a broker whose own file says that nothing compacted is tiered: others may have copies.
        is_tiered, first_offset = log.config.remote_storage_enable, log.segments[0].base_offset
        transactions = Transactions(self._aborted(first_offset, upper_offset), first_offset if is_tiered else 0)
        compaction = self._compaction = Compaction(
            self._map,
            transactions,
            upper_offset=upper_offset,
            now_ms=self._now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            limit_bytes=self._limit_bytes,
            keeps_deletions=is_tiered,
        )
        position = log.segments[0].base_offset
        while rest := [each for each in self._closed_segments(position, end_offset) if each.base_offset >= position]:
            config = log.config
            rest = _on_one_side(rest, log.highest_copied_offset + 1)
            group = list(next_group(rest, upper_offset, config.segment_bytes, config.segment_index_bytes))
            position = group[-1].base_offset + 1
            compaction.last_batches = last_batches(log)
            self._copy = copy = log.swaps.begin_copy(group[0].base_offset, config.segment_index_bytes, self._now_ms)
            copy.copied_from_ms = group[-1].largest_timestamp()
            self._is_changed = False
            yield from self._fill(copy, group, compaction)
            for each in transactions.kept:
                copy.aborted.append(each)
            transactions.kept.clear()
            if self._is_changed or len(group) > 1:
                yield partial(_make_durable, copy)
                self._check_wanted()
                yield from self._put_in_place(copy, group)
            else:
                yield partial(self._discard_slice)
            self._check_wanted()

    def _fill(self, copy: Segment, group: list[Segment], compaction: Compaction) -> Iterator[Slice]:
        for segment in group:
            reader = self._read(segment)
            try:
                while not reader.is_done:
                    yield partial(self._copy_slice, reader, copy, compaction)
                    self._check_wanted()
            finally:
                reader.close()

    def _copy_slice(self, reader: _Reader, copy: Segment, compaction: Compaction) -> int:
        before, size = reader.position, 0
        kept: list[bytes | bytearray | memoryview] = []
        appended: list[AppendedBatch] = []
        for header, batch in reader.next_batches():
            rest = compaction.compact(header, batch)
            if rest is not batch:
                self._is_changed = True
                if rest is None:
                    continue
                header = read_header(rest)
            appended.append(AppendedBatch(size, len(rest), header.last_offset, header.max_timestamp))
            kept.append(rest)
            size += len(rest)
        if copy.size_bytes + size > _MAX_SEGMENT_BYTES:
            raise CorruptBatch(f"the copy of segment {copy.base_offset} would grow beyond {_MAX_SEGMENT_BYTES} bytes")
        if appended:
            # A full index remains as it is; it may be sparse.
            is_full = copy.offset_index.is_full or copy.time_index.is_full
            interval = _MAX_SEGMENT_BYTES if is_full else self._log.config.index_interval_bytes
            copy.append(b"".join(kept), appended, interval)
        return reader.position - before + size

    def _put_in_place(self, copy: Segment, group: list[Segment]) -> Iterator[Slice]:
        before = sum(segment.size_bytes for segment in group)
        due_ms = self._now_ms + self._log.config.file_delete_delay_ms
        swap = self._log.swaps.replace(group, copy, due_ms)
        if swap is None:
            raise CleaningAborted(f"{self._log}: retention deleted {group[0]}")
        self._copy = None
        self.bytes_before += before
        self.bytes_after += copy.size_bytes
        yield from self._finish(swap)

    def _finish(self, swap: SegmentSwap) -> Iterator[Slice]:
        def run() -> int:
            swap()
            return 0

        yield run
        self._log.swaps.finished(swap)

    def _discard_slice(self) -> int:
        self.discard()
        return 0


def _on_one_side(segments: list[Segment], copied_to: int) -> list[Segment]:
    """The leading ones that are all remote already, or that are all not: what is remote would be copied again together
    with what is not."""
    is_copied = segments[0].base_offset < copied_to
    return list(takewhile(lambda each: (each.base_offset < copied_to) == is_copied, segments))


def last_batches(log: PartitionLog) -> dict[int, LastBatch]:
    """Batches that must be kept as the last one of their producer, by producer id."""
    if log.producers is None:
        return {}
    return {
        producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
        for producer_id, entry in log.producers.entries.items()
    }


def _make_durable(copy: Segment) -> int:
    copy.seal()
    copy.forget_boundaries()
    for file in copy.files_to_sync():
        file.sync()
    return 0


class _Reader:
    """Reads a closed segment through a file of its own, because the segment may be removed from the log meanwhile."""

    __slots__ = ("_chunk", "_file", "_next_offset", "_size", "_slice_bytes", "end_offset", "is_cut_short", "position")

    def __init__(self, disk: Disk, segment: Segment, position: int, end_offset: int, settings: CleanerSettings) -> None:
        self._file = disk.open(segment.log_path)
        self._size = segment.size_bytes
        self._slice_bytes = max(settings.slice_bytes, BATCH_HEADER_BYTES)
        self._chunk = memoryview(b"")
        """Data from `position` on."""
        self._next_offset = segment.base_offset
        self.end_offset = end_offset
        """End offset of the segment."""
        self.position = position
        self.is_cut_short = False

    @property
    def is_done(self) -> bool:
        return self.is_cut_short or self.position >= self._size

    def cut_short(self) -> None:
        self.is_cut_short = True

    def next_batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Batches of the next slice, at least one; the position advances as they are consumed."""
        records = read_bytes = 0
        while not self.is_done and records < _SLICE_RECORDS and read_bytes < self._slice_bytes:
            header = self._next_header()
            size = header.size_bytes
            batch = self._chunk[:size]
            self._check(header, size == len(batch) and crc_is_valid(batch, 0, header))
            self._chunk = self._chunk[size:]
            self.position += size
            read_bytes += size
            records += header.records_count + _BATCH_IN_RECORDS
            yield header, batch

    def _next_header(self) -> BatchHeader:
        """Header of the batch at `position`, loading it into the chunk unless it extends beyond the segment."""
        rest = self._size - self.position
        if len(self._chunk) < min(BATCH_HEADER_BYTES, rest):
            self._chunk = memoryview(self._file.pread(min(self._slice_bytes, rest), self.position))
        header = read_header(self._chunk)
        if len(self._chunk) < header.size_bytes <= rest:
            wanted = max(header.size_bytes, self._slice_bytes)
            self._chunk = memoryview(self._file.pread(min(wanted, rest), self.position))
        return header

    def _check(self, header: BatchHeader, is_whole: bool) -> None:
        """The CRC covers neither the base offset nor the length in the header."""
        if not is_whole:
            raise CorruptBatch(f"{self._file.path}: the batch at byte {self.position} is damaged")
        first, last = header.base_offset, header.last_offset
        if header.last_offset_delta < 0 or first < self._next_offset or last >= self.end_offset:
            raise CorruptBatch(f"{self._file.path}: offsets {first} to {last} at byte {self.position} are out of order")
        self._next_offset = last + 1

    def close(self) -> None:
        self._file.close()
