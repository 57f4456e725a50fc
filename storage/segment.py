"""One segment of a log: a `.log` file of record batches and its indexes.

The segment maps offsets to file positions and these to complete batches. It keeps the size of its file itself, so bytes
that a failed write left behind the last good batch are never served. It also caches boundaries that readers at the tail
ask for, so those need no file access. Knows neither leaders nor producers nor other segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    read_header,
)
from barnabas.protocol.records.crc import crc32c
from barnabas.runtime.world import Bytes, File
from barnabas.storage.batch_walk import check_boundary, skip_to
from barnabas.storage.folder import Folder
from barnabas.storage.indexes import PAGE_BYTES, CorruptIndex, EntryFile, OffsetIndex, TimeIndex, TimestampOffset
from barnabas.storage.names import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES
from barnabas.storage.transaction_index import AbortedIndex

_COPY_BYTES = 1 << 20
_BOUNDARIES_KEPT = 32
_CURSORS_KEPT = 16


class AppendedBatch(NamedTuple):
    """Properties of an appended batch that a segment needs."""

    position: int
    """Position within the appended bytes."""
    size_bytes: int
    last_offset: int
    max_timestamp: int


class Boundary(NamedTuple):
    """A position between two batches."""

    position: int
    next_offset: int
    """The offset after the previous batch, or the first of the next one."""
    next_size_bytes: int
    """Size of the next batch; -1 if that was not read."""


class Segment:
    """Batches from `base_offset` on. Create it with `create` or `open`.

    `first_batch_timestamp` is the largest timestamp of the first batch (-1 unknown), from which `segment.ms` counts.
    """

    __slots__ = (
        "_boundaries",
        "_bytes_since_index",
        "_cursors",
        "_deleted_suffix",
        "_dirty",
        "_folder",
        "_has_file",
        "_index_page_is_full",
        "_max_timestamp",
        "_tail_unknown",
        "aborted",
        "base_offset",
        "copied_from_ms",
        "created_ms",
        "first_batch_timestamp",
        "offset_index",
        "opened_file",
        "size_bytes",
        "time_index",
    )

    def __init__(self, folder: Folder, base_offset: int, index_max_bytes: int, now_ms: int) -> None:
        self._folder = folder
        self.opened_file: File | None = None
        """The `.log`, while it is open."""
        self._has_file = True
        self.base_offset = base_offset
        self.size_bytes = 0
        self.created_ms = now_ms
        self.copied_from_ms: int | None = None
        """For a compacted copy: modification time of the youngest original."""
        self.first_batch_timestamp: int | None = None
        self._deleted_suffix = ""
        self._max_timestamp: TimestampOffset | None = None
        self._bytes_since_index = 0
        self._index_page_is_full = False
        """Index entries are to be written before the next append."""
        self._dirty = False
        self._tail_unknown = False
        """A write failed and the file may be longer than `size_bytes`."""
        self._boundaries: dict[int, int] = {}
        """Recent appends: from an offset to the position of the first batch that reaches it."""
        self._cursors: dict[int, int] = {}
        """The same for the positions where lagging readers stopped."""
        self.offset_index = OffsetIndex(folder, base_offset, index_max_bytes)
        self.time_index = TimeIndex(folder, base_offset, index_max_bytes)
        self.aborted = AbortedIndex(folder, base_offset)
        """Filled by the tracker of the log's producers."""

    @classmethod
    def create(cls, folder: Folder, base_offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        """An empty segment; existing files of the same name are emptied."""
        segment = cls(folder, base_offset, index_max_bytes, now_ms)
        segment._max_timestamp = TimestampOffset(NO_TIMESTAMP, base_offset)
        segment._dirty = True
        segment._has_file = False
        try:
            segment.log_file()
            for index in segment._indexes:
                index.create()
                # Most segments of most partitions do not look into their indexes before they are flushed.
                index.close()
        except OSError:
            # If it stayed, it would represent a part of the log that the previous segment still contains.
            segment.remove_files()
            raise
        return segment

    @classmethod
    def begin(cls, folder: Folder, index_max_bytes: int, now_ms: int) -> Segment:
        """The first segment of a log in a directory that has none. Its files are created with the first record: most
        partitions of a large cluster have none, and a directory without files is an empty log.
        """
        segment = cls(folder, 0, index_max_bytes, now_ms)
        segment._max_timestamp = TimestampOffset(NO_TIMESTAMP, 0)
        segment._has_file = False
        segment.offset_index.begin()
        segment.time_index.begin()
        return segment

    @classmethod
    def open(cls, folder: Folder, base_offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        """A segment with an existing `.log`. Indexes are loaded separately, because they may have to be rebuilt."""
        segment = cls(folder, base_offset, index_max_bytes, now_ms)
        segment.size_bytes = folder.disk.size(segment.log_path)
        return segment

    def load_indexes(self) -> None:
        """Raises `CorruptIndex` if the offset or time index does not fit this segment."""
        for index in (self.offset_index, self.time_index):
            try:
                index.load()
            finally:
                index.close()

    def load_aborted(self) -> None:
        """Raises `CorruptIndex` if it does not fit this segment and has to be rebuilt."""
        try:
            self.aborted.load()
        except CorruptIndex:
            self.aborted.start_rebuild()
            raise
        finally:
            self.aborted.close()

    # -- state

    @property
    def _indexes(self) -> tuple[EntryFile, ...]:
        return self.offset_index, self.time_index, self.aborted

    @property
    def log_path(self) -> str:
        return self._folder.file(self.base_offset, LOG_SUFFIX) + self._deleted_suffix

    @property
    def open_files(self) -> int:
        return (self.opened_file is not None) + sum(index.is_open for index in self._indexes)

    @property
    def has_file(self) -> bool:
        """False if the `.log` of a new log does not exist yet: the first append creates it."""
        return self._has_file

    def log_file(self) -> File:
        """The `.log`, opened if it is not. It may be closed again between two calls (`storage.open_files`), but not for
        a caller that keeps it.
        """
        file = self.opened_file
        if file is None:
            file = self._folder.open_for(self, self.log_path, create=not self._has_file)
            if not self._has_file:
                file.truncate(0)
                self._has_file = self._dirty = True
                self._folder.new_names += 1
        return file

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp in the segment (-1 if no record has one) and the last offset of its batch."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last_entry
        return self._max_timestamp

    def largest_timestamp(self) -> int:
        """Timestamp for retention by time: that of the records, or of the file if they have none (magic 0, or
        compaction removed them all).
        """
        timestamp = self.max_timestamp.timestamp
        if timestamp >= 0:
            return timestamp
        if self.copied_from_ms is not None:
            return self.copied_from_ms
        if not self._has_file:
            return self.created_ms
        return self._folder.disk.modified_ms(self.log_path)

    def waited_ms(self, now_ms: int, batch_timestamp: int) -> int:
        """Time since the first batch, by the records' timestamps if they have any."""
        first = self.first_batch_timestamp
        if first is None:
            first = self.first_timestamp()
        return batch_timestamp - first if first >= 0 else now_ms - self.created_ms

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 if there is none."""
        if self.first_batch_timestamp is None:
            first = next(self.headers(), None)
            self.first_batch_timestamp = first[1].max_timestamp if first is not None else NO_TIMESTAMP
        return self.first_batch_timestamp

    # -- writes

    def append(self, data: Bytes, batches: list[AppendedBatch], index_interval_bytes: int) -> None:
        """Write `data` at the end, in one call. After an OSError the segment is unchanged."""
        start = self.size_bytes
        # Before the data, so that a failed index write leaves nothing to undo.
        if self._index_page_is_full:
            self.write_indexes()
        if self._tail_unknown:
            self.cut_unknown_tail()
        try:
            (self.opened_file or self.log_file()).pwrite(data, start)
        except OSError:
            self._tail_unknown = True
            raise
        if not start:
            self.first_batch_timestamp = batches[0].max_timestamp
        max_timestamp = self._max_timestamp or self.max_timestamp
        since_index = self._bytes_since_index
        boundaries = self._boundaries
        for position, size, last_offset, timestamp in batches:
            if timestamp > max_timestamp[0]:
                max_timestamp = self._max_timestamp = TimestampOffset(timestamp, last_offset)
            if since_index > index_interval_bytes:
                self._index(last_offset, start + position, max_timestamp)
                since_index = 0
            since_index += size
            boundaries[last_offset + 1] = start + position + size
        self._bytes_since_index = since_index
        self.size_bytes = start + len(data)
        self._dirty = True
        while len(boundaries) > _BOUNDARIES_KEPT:
            del boundaries[next(iter(boundaries))]

    def _index(self, last_offset: int, position: int, max_timestamp: TimestampOffset) -> None:
        """Add a batch to both indexes."""
        offsets, times = self.offset_index, self.time_index
        offsets.append(last_offset, position)
        times.maybe_append(*max_timestamp)
        self._index_page_is_full = offsets.unwritten_bytes >= PAGE_BYTES or times.unwritten_bytes >= PAGE_BYTES

    def cut_unknown_tail(self) -> None:
        """Truncate what a failed write may have left behind the last good batch."""
        if self._tail_unknown:
            self.log_file().truncate(self.size_bytes)
            self._tail_unknown = False

    def seal(self) -> None:
        """No more appends: add the final time index entry and free memory."""
        self.cut_unknown_tail()
        self.time_index.maybe_append(*self.max_timestamp)
        for index in self._indexes:
            index.seal()

    def forget_boundaries(self) -> None:
        """Readers at the tail have left this segment."""
        self._boundaries.clear()

    def write_out(self) -> None:
        """Write everything that is only in memory, as at a clean stop."""
        self.cut_unknown_tail()
        self.time_index.maybe_append(*self.max_timestamp)
        self.write_indexes()

    def write_indexes(self) -> None:
        """Write index entries to the files. After an OSError nothing is lost."""
        for index in self._indexes:
            index.write_out()
        self._index_page_is_full = False

    def files_to_sync(self) -> list[File]:
        """Files that changed since the previous call. Data precedes its indexes."""
        if not self._has_file:
            return []
        files: list[File] = []
        # Steps that need room come first: files that are not returned would be lost to the next call.
        self.write_indexes()
        if self._dirty:
            self.cut_unknown_tail()
            self._dirty = False
            files.append(self.log_file())
        for index in self._indexes:
            files += index.files_to_sync()
        return files

    def end_if_cut(self, offset: int) -> int:
        """`offset`, or the base offset of the batch that contains it."""
        position = self.position_of(offset)
        if position == self.size_bytes:
            return offset
        base_offset = skip_to(self._pread, self._corrupt, position, self.size_bytes, limit=position)[1]
        return min(base_offset, offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the first batch that reaches `offset`, and everything after it."""
        position = self.position_of(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.aborted.truncate_to(offset)
        if position < self.size_bytes or self._tail_unknown:
            self.log_file().truncate(position)
            self._tail_unknown = False
            self._dirty = True
        self.size_bytes = position
        self._bytes_since_index = 0
        self._boundaries.clear()
        self._cursors.clear()
        if not position:
            self.first_batch_timestamp = None
        self.find_max_timestamp()

    def find_max_timestamp(self) -> None:
        """Find the largest timestamp, which the time index may lack: scans the batches after the last offset index
        entry.

        Both indexes get entries for the same batches, so up to there the time index is complete.
        """
        largest = self.time_index.last_entry
        for _, header in self.headers(self.last_indexed_position()):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        self._max_timestamp = largest

    def confirms(self, entry: TimestampOffset) -> bool:
        """True if the batch of a time index entry confirms it. Raises CorruptBatch."""
        for _, header in self.headers(self.position_of(entry.offset)):
            return header.last_offset == entry.offset and header.max_timestamp == entry.timestamp
        return False

    def last_indexed_position(self) -> int:
        """Position of the last batch in the offset index; 0 if it is empty."""
        index = self.offset_index
        return index.entry(index.entries - 1).position if index.entries else 0

    def indexes_reach(self, offset: int) -> bool:
        """True if any index has an entry for `offset` or later."""
        return (
            (self.offset_index.entries > 0 and self.offset_index.last_offset >= offset)
            or (self.time_index.entries > 0 and self.time_index.last_entry.offset >= offset)
            or self.aborted.last_offset >= offset
        )

    def reset(self, *, keep_aborted: bool = False) -> None:
        """Clear all state about the contents before they are scanned again.

        `keep_aborted`: the transaction index is durable and sound. Missing entries would not be noticed.
        """
        self.offset_index.create()
        self.time_index.create()
        if not keep_aborted:
            self.aborted.start_rebuild()
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.first_batch_timestamp = None
        self._bytes_since_index = 0
        self._boundaries.clear()
        self._cursors.clear()

    def recovered(self, position: int, last_offset: int, size: int, timestamp: int, interval: int) -> None:
        """Index a batch that is in the file already (the counterpart of `append`)."""
        if not position:
            self.first_batch_timestamp = timestamp
        if timestamp > self.max_timestamp.timestamp:
            self._max_timestamp = TimestampOffset(timestamp, last_offset)
        if self._bytes_since_index > interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*self.max_timestamp)
            self._bytes_since_index = 0
            if self.offset_index.unwritten_bytes >= PAGE_BYTES:
                self.offset_index.write_out()
                self.time_index.write_out()
        self._bytes_since_index += size

    def cut_file(self, size_bytes: int) -> None:
        """Truncate the file at a boundary found by a scan."""
        if self.log_file().size() != size_bytes:
            self.log_file().truncate(size_bytes)
        self.size_bytes = size_bytes
        self._dirty = True
        if self.aborted.entries:
            self.aborted.truncate_to(self.read_end_offset())

    def rewrite_from(self, position: int) -> None:
        """Write the file's content from there on once more, so that the next sync covers it."""
        file = self.log_file()
        while data := file.pread(min(_COPY_BYTES, self.size_bytes - position), position):
            file.pwrite(data, position)
            position += len(data)
        self._dirty = True

    # -- lookup

    def _pread(self, count: int, position: int) -> bytes:
        return (self.opened_file or self.log_file()).pread(count, position)

    def _corrupt(self, position: int, problem: str) -> CorruptBatch:
        return CorruptBatch(f"{self.log_path} at byte {position}: {problem}")

    def position_of(self, offset: int) -> int:
        """Position of the first batch that reaches `offset`; the end of the segment if there is none.

        Needs no file access for offsets that were just appended or where a reader stopped.
        """
        known = self._boundaries.get(offset)
        if known is None:
            known = self._cursors.get(offset)
            if known is None:
                if offset <= self.base_offset:
                    return 0
                return self._search(self.offset_index.lookup(offset).position, offset)
        return known

    def start_of_read(self, offset: int) -> int:
        """Like `position_of`, for readers that send the bytes: checks the header of the first batch, unless it was just
        appended. Raises `CorruptBatch` if it is invalid.
        """
        known = self._boundaries.get(offset)
        return self.checked_start(self.position_of(offset)) if known is None else known

    def checked_start(self, position: int) -> int:
        """Returns `position`. Raises `CorruptBatch` unless a batch header is there, or the segment ends."""
        check_boundary(self._pread, self._corrupt, position, self.size_bytes)
        return position

    def _search(self, start: int, offset: int) -> int:
        return skip_to(self._pread, self._corrupt, start, self.size_bytes, offset)[0]

    def boundary_within(self, start: int, limit: int) -> Boundary:
        """The last boundary at or before `limit`, from the boundary `start` <= limit < size.

        Its position is `start` if the first batch already reaches beyond `limit`.
        """
        start = max(start, self.offset_index.lookup_position(limit).position)
        position, base_offset, next_offset, end = skip_to(
            self._pread, self._corrupt, start, self.size_bytes, limit=limit
        )
        if position == end:
            return Boundary(position, next_offset, -1)
        return Boundary(position, base_offset if next_offset < 0 else next_offset, end - position)

    def remember_cursor(self, next_offset: int, position: int) -> None:
        """A reader stopped at this boundary and will return to it."""
        cursors = self._cursors
        cursors[next_offset] = position
        if len(cursors) > _CURSORS_KEPT:
            del cursors[next(iter(cursors))]

    def headers(self, position: int = 0, step_bytes: int = PAGE_BYTES) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from a boundary on, read in steps of `step_bytes`."""
        chunk, chunk_start = b"", position
        while position < self.size_bytes:
            at = position - chunk_start
            if at + BATCH_HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = self._pread(step_bytes, position), position, 0
            header = read_header(chunk, at)
            if header.last_offset_delta < 0 or position + header.size_bytes > self.size_bytes:
                raise self._corrupt(position, f"no batch begins here (length {header.batch_length})")
            yield position, header
            position += header.size_bytes

    def read_end_offset(self) -> int:
        """The offset after the last batch in the file; the base offset if it is empty."""
        end_offset = self.base_offset
        for _, header in self.headers(self.last_indexed_position()):
            end_offset = header.next_offset
        return end_offset

    # -- removal and renaming

    def mark_deleted(self, suffix: str = DELETED_SUFFIX) -> None:
        """Rename the files so that a restart deletes them; current readers can continue."""
        disk = self._folder.disk
        # The indexes first: a log without indexes can be rebuilt, indexes without a log are useless.
        for kind in reversed(SEGMENT_SUFFIXES):
            path = self._folder.file(self.base_offset, kind)
            if disk.exists(path):
                disk.rename(path, path + suffix)
        self._deleted_suffix = suffix

    def remove_files(self) -> None:
        """Delete the files; missing ones are no error."""
        self.close_files()
        disk = self._folder.disk
        for kind in reversed(SEGMENT_SUFFIXES):
            path = self._folder.file(self.base_offset, kind) + self._deleted_suffix
            if disk.exists(path):
                disk.remove(path)

    def hold_open(self) -> None:
        """The files are about to be renamed, so none of them may be opened by name."""
        self.log_file()
        self.offset_index.hold_open()
        self.time_index.hold_open()

    def move_to(self, folder: Folder) -> None:
        """The files have been moved to `folder`."""
        self.close_files()
        self._folder = folder
        for index in self._indexes:
            index.move_to(folder)

    def close_files(self) -> None:
        """They are opened again when they are needed; those who use them now may go on."""
        self._folder.files.forget(self)
        for index in self._indexes:
            index.close()

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size_bytes} bytes)"


def crc_of_file(file: File, position: int, end: int, step_bytes: int) -> int:
    """CRC-32C of a part of a file that is too large to be read at once."""
    crc = 0
    while position < end:
        data = file.pread(min(step_bytes, end - position), position)
        if not data:
            break
        crc = crc32c(data, crc)
        position += len(data)
    return crc
