"""Reads the files of one partition's log without its broker, which may write at the same time.

A broker may append to the last segment, delete the first ones, and swap in compacted ones at any time. So the reader
keeps offsets, not files: it looks up the segment of an offset when it needs it, and again if the file has disappeared.
The caller gives the offset up to which the log counts (its high watermark); bytes above it may be incomplete and are
never read. Knows nothing of Spark, topics and transactions.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas.pipeline.errors import PipelineError
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, CorruptBatch, crc_is_valid, read_header
from barnabas.storage.names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, parse_offset_file_name

CHUNK_BYTES = 8 * 1024 * 1024
_MAX_LISTINGS = 5
"""Maximum number of listings of the directory when files disappear."""
_LARGEST_BATCH_BYTES = 1 << 30
Offsets = npt.NDArray[np.int64]
_INDEX_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])


class Fault(NamedTuple):
    """A position in a file at which no batch can be read although there should be one."""

    path: str
    position: int
    """In bytes; -1 if no file has the offset."""
    offset: int
    """The first offset that cannot be read."""
    kind: str
    """`torn`: the file ends within a batch. `corrupt`: the bytes are no batch. `gone`: no file has the offset."""
    reason: str

    def __str__(self) -> str:
        where = f"{self.path} at byte {self.position}" if self.position >= 0 else self.path
        return f"{where}: {self.kind} from offset {self.offset} on: {self.reason}"


class BrokenLog(PipelineError):
    """The log cannot be read up to the requested offset."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault}; read another replica, or skip unreadable batches")
        self.fault = fault

    def __reduce__(self) -> tuple[type[BrokenLog], tuple[Fault]]:
        return BrokenLog, (self.fault,)


class SegmentFile(NamedTuple):
    """A segment's `.log`."""

    base_offset: int
    path: Path
    size_bytes: int


class Batch(NamedTuple):
    """A complete batch with a valid checksum."""

    position: int
    """Within its chunk."""
    header: BatchHeader


class Chunk(NamedTuple):
    """Consecutive batches of one segment."""

    data: memoryview
    batches: list[Batch]


def segment_files(directory: Path) -> list[SegmentFile]:
    """The segments in the order of base offsets, without those marked for deletion."""
    found = []
    with suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            named = parse_offset_file_name(entry.name)
            if named is not None and named[1] == LOG_SUFFIX:
                with suppress(FileNotFoundError):
                    found.append(SegmentFile(named[0], Path(entry.path), entry.stat().st_size))
    return sorted(found)


def index_entries(segment: SegmentFile) -> tuple[Offsets, Offsets]:
    """(last offsets of batches, their positions) in the segment's `.index`, sparse and ascending. Only a hint: the file
    may belong to an older or a newer segment than the one that was listed."""
    path = segment.path.with_suffix(OFFSET_INDEX_SUFFIX)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    entries = np.frombuffer(data[: len(data) // 8 * 8], _INDEX_ENTRY)
    offsets = entries["offset"].astype(np.int64)
    positions = entries["position"].astype(np.int64)
    # Kafka preallocates index files: zeros follow the last entry.
    used = int(np.count_nonzero(positions))
    offsets, positions = offsets[:used], positions[:used]
    if np.any(np.diff(offsets) <= 0) or np.any(np.diff(positions) <= 0):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return offsets + segment.base_offset, positions


def split_offsets(segment: SegmentFile, split_bytes: int) -> list[int]:
    """Offsets at which to split a large segment into parts of about `split_bytes`, without its base offset."""
    if segment.size_bytes <= split_bytes * 3 // 2:
        return []
    offsets, positions = index_entries(segment)
    parts = -(-segment.size_bytes // split_bytes)
    wanted = [segment.size_bytes * part // parts for part in range(1, parts)]
    slots = np.searchsorted(positions, wanted)
    return sorted({int(offsets[slot]) + 1 for slot in slots if slot < len(offsets)})


def log_end_offset(directory: Path) -> int:
    """The offset after the last complete batch; 0 without segments."""
    segments = segment_files(directory)
    if not segments:
        return 0
    last = segments[-1]
    offsets, _ = index_entries(last)
    # Only a few batches follow the last entry of the index.
    start = int(offsets[-1]) if len(offsets) else last.base_offset
    end = last.base_offset
    for head in read_heads(directory, start, 1 << 62):
        header = head.header
        if header.next_offset <= end:
            continue
        # Only the last batch may be incomplete. The checksums of the others are verified when they are read.
        if head.position + header.size_bytes == os.fstat(head.file.fileno()).st_size:
            whole = head.whole()
            if not crc_is_valid(whole, 0, header):
                break
        end = header.next_offset
    return end


class _Reader:
    """One pass over a range of offsets."""

    def __init__(self, directory: Path, from_offset: int, until_offset: int, chunk_bytes: int) -> None:
        self.directory = directory
        self.offset = from_offset
        """All batches before it were returned, or do not exist."""
        self.until = until_offset
        self.chunk_bytes = chunk_bytes
        self.skipped: list[Fault] | None = None

    def open(self, finished: _Opened | None) -> _Opened | None:
        """The segment with the next offset, or the first one after it; None if there is none before `until`.

        `finished` was read to its end. It is not read again unless another file has its name now: compaction may have
        merged the following segments into it.
        """
        for _ in range(_MAX_LISTINGS):
            segments = segment_files(self.directory)
            bases = [segment.base_offset for segment in segments]
            slot = max(bisect_right(bases, self.offset) - 1, 0)
            if finished is not None and slot < len(segments) and finished.is_still(segments[slot]):
                slot += 1
            if slot >= len(segments) or bases[slot] >= self.until:
                return None
            if slot == 0 and bases[0] > self.offset:
                why = f"older segments were deleted, and the log begins at offset {bases[0]} now"
                self.report(Fault(str(self.directory), -1, self.offset, "gone", why))
            try:
                file = segments[slot].path.open("rb")
            except FileNotFoundError:
                # Deleted, renamed or swapped since it was listed: another file has the offset, or none.
                continue
            self.offset = max(self.offset, bases[slot])
            return _Opened(segments[slot], file)
        why = "its segments change faster than they can be read"
        raise BrokenLog(Fault(str(self.directory), -1, self.offset, "gone", why))

    def segments(self) -> Iterator[_Opened]:
        """The segments to read, in order; each is closed when the next one is requested."""
        opened: _Opened | None = None
        try:
            while self.offset < self.until:
                finished, opened = opened, self.open(opened)
                if finished is not None:
                    finished.file.close()
                if opened is None:
                    return
                yield opened
        finally:
            if opened is not None:
                opened.file.close()

    def report(self, fault: Fault) -> None:
        if self.skipped is None:
            raise BrokenLog(fault)
        self.skipped.append(fault)

    def seek(self, opened: _Opened) -> int:
        """The position of the batch with the next offset or the first one after it; the file's size if there is
        none."""
        offsets, positions = index_entries(opened.segment)
        slot = int(np.searchsorted(offsets, self.offset, side="right")) - 1
        position = 0
        if slot >= 0:
            header = _header_at(opened.file, int(positions[slot]))
            # The index may belong to another version of the file.
            if header is not None and header.last_offset == int(offsets[slot]):
                position = int(positions[slot])
        while position < opened.size_bytes:
            header = _header_at(opened.file, position)
            if header is None or header.next_offset > self.offset:
                break
            position += header.size_bytes
        return min(position, opened.size_bytes)


class _Opened:
    """An open segment file and its size when it was last checked."""

    __slots__ = ("file", "segment", "size_bytes")

    def __init__(self, segment: SegmentFile, file: BinaryIO) -> None:
        self.segment = segment
        self.file = file
        self.check_size()

    def check_size(self) -> None:
        self.size_bytes = os.fstat(self.file.fileno()).st_size

    def is_still(self, listed: SegmentFile) -> bool:
        """Whether the listed name refers to this very file, and the file has not grown."""
        if listed.base_offset != self.segment.base_offset:
            return False
        mine = os.fstat(self.file.fileno())
        try:
            return mine.st_size <= self.size_bytes and os.path.samestat(mine, os.stat(listed.path))
        except FileNotFoundError:
            return False


def _header_at(file: BinaryIO, position: int) -> BatchHeader | None:
    try:
        return read_header(os.pread(file.fileno(), BATCH_HEADER_BYTES, position))
    except CorruptBatch:
        return None


def read_batches(
    directory: Path,
    from_offset: int,
    until_offset: int,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    skipped: list[Fault] | None = None,
) -> Iterator[Chunk]:
    """The batches with offsets in [from_offset, until_offset), in order, with valid checksums.

    The first and the last may have offsets outside of the range. If `skipped` is given, faults are appended to it and
    reading continues after them; otherwise BrokenLog.
    """
    reader = _Reader(directory, from_offset, until_offset, chunk_bytes)
    reader.skipped = skipped
    for opened in reader.segments():
        yield from _read_segment(reader, opened)


class Head(NamedTuple):
    """A batch of which only the header was read; its checksum was not verified."""

    header: BatchHeader
    position: int
    file: BinaryIO

    def whole(self) -> bytes:
        """The bytes of the batch."""
        return os.pread(self.file.fileno(), self.header.size_bytes, self.position)


def read_heads(directory: Path, from_offset: int, until_offset: int) -> Iterator[Head]:
    """The headers of the batches that `read_batches` returns, without those after an invalid header in a segment.

    Costs one small read for each batch.
    """
    reader = _Reader(directory, from_offset, until_offset, 0)
    reader.skipped = []
    for opened in reader.segments():
        position = reader.seek(opened)
        while position < opened.size_bytes and reader.offset < until_offset:
            header = _header_at(opened.file, position)
            if header is None or header.size_bytes > opened.size_bytes - position:
                break
            if header.base_offset >= until_offset:
                break
            reader.offset = max(reader.offset, header.next_offset)
            yield Head(header, position, opened.file)
            position += header.size_bytes


def _read_segment(reader: _Reader, opened: _Opened) -> Iterator[Chunk]:
    file = opened.file
    size = opened.size_bytes
    position = reader.seek(opened)
    wanted = reader.chunk_bytes
    while position < size and reader.offset < reader.until:
        data = os.pread(file.fileno(), min(wanted, size - position), position)
        batches, used, fault, needed = _complete_batches(data, reader, at_end=position + len(data) >= size)
        if batches:
            reader.offset = batches[-1].header.next_offset
            yield Chunk(memoryview(data)[:used], batches)
        if fault is not None and reader.offset < reader.until:
            kind, why = fault
            reader.report(Fault(str(opened.segment.path), position + used, reader.offset, kind, why))
            step = _step_over(file, position + used, size, reader.offset)
            if step is None:
                return
            position += used + step
            wanted = reader.chunk_bytes
            continue
        if needed > wanted:
            wanted = needed
            continue
        wanted = reader.chunk_bytes
        if not used:
            return
        position += used


def _complete_batches(
    data: bytes, reader: _Reader, *, at_end: bool
) -> tuple[list[Batch], int, tuple[str, str] | None, int]:
    """(batches, their size, (kind, reason) of a fault after them, size of the next batch if `data` cuts it)."""
    batches: list[Batch] = []
    position, offset = 0, reader.offset
    while position < len(data) and offset < reader.until:
        left = len(data) - position
        try:
            header = read_header(data, position)
        except CorruptBatch as error:
            if left < BATCH_HEADER_BYTES and not at_end:
                return batches, position, None, 0
            if left < BATCH_HEADER_BYTES:
                return batches, position, ("torn", f"{left} bytes are too few for a batch header"), 0
            return batches, position, ("corrupt", str(error)), 0
        if header.size_bytes > _LARGEST_BATCH_BYTES or (batches and header.base_offset < offset):
            why = f"a batch of {header.size_bytes} bytes at offset {header.base_offset}"
            return batches, position, ("corrupt", why), 0
        if header.base_offset >= reader.until:
            return batches, position, None, 0
        if header.size_bytes > left:
            if at_end:
                why = f"the batch has {header.size_bytes} bytes, but the file has only {left} more"
                return batches, position, ("torn", why), 0
            return batches, position, None, header.size_bytes
        if not crc_is_valid(data, position, header):
            return batches, position, ("corrupt", f"wrong checksum of the batch at offset {header.base_offset}"), 0
        batches.append(Batch(position, header))
        position += header.size_bytes
        offset = header.next_offset
    return batches, position, None, 0


def _step_over(file: BinaryIO, position: int, size: int, offset: int) -> int | None:
    """The size of an unreadable batch, if another batch follows at its end; otherwise None."""
    header = _header_at(file, position)
    if header is None or header.base_offset < offset or position + header.size_bytes >= size:
        return None
    following = _header_at(file, position + header.size_bytes)
    if following is None or following.base_offset < header.next_offset:
        return None
    return header.size_bytes
