"""The two sparse indexes of a segment: offset to file position, and timestamp to offset.

Entries are Kafka's (8 and 12 bytes, big-endian, offsets relative to the segment's base), but the files are plain: they
grow by `pwrite` at their end instead of being mapped and preallocated, so a full disk is an OSError and not a SIGBUS.
Files that Kafka preallocated are accepted: zeros after the last entry are cut off.

The last entries, Kafka's *warm section*, stay in memory, some of them not written to the file yet. A crash may lose
those without harm: the indexes of an unflushed segment are rebuilt, and a flush writes them first. Neither class knows
segments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from barnabas.runtime.world import File, FileRegion
from barnabas.storage.folder import Folder
from barnabas.storage.names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX

PAGE_BYTES = 4096
WARM_SECTION_BYTES = 8192
"""Kafka's constant. Consumers and followers look up near the end: a search that first compares with the entry this far
back, and stays behind it, touches only the last three pages (KAFKA-6432).
"""

MAX_RELATIVE_OFFSET = 0x7FFF_FFFF
"""The largest distance of an offset from the base of its segment."""

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class CorruptIndex(Exception):
    """The file cannot be this segment's index. It can be rebuilt from the segment."""


class OffsetPosition(NamedTuple):
    offset: int
    """Last offset of a batch."""
    position: int
    """Position of that batch in the segment's file."""


class TimestampOffset(NamedTuple):
    timestamp: int
    """Milliseconds; the largest in the segment up to `offset`."""
    offset: int
    """Last offset of the batch that has it."""


class EntryFile:
    """Fixed-size entries in an append-only file, with its tail in memory."""

    __slots__ = (
        "_cold",
        "_cold_start",
        "_dirty",
        "_folder",
        "_is_nameless",
        "_tail",
        "_tail_start",
        "_torn",
        "_written",
        "base_offset",
        "entries",
        "full_at",
        "max_entries",
        "opened_file",
        "page_touched",
    )

    suffix: ClassVar[str]
    """The end of the file's name."""
    entry_bytes: ClassVar[int]

    def __init__(self, folder: Folder, base_offset: int, max_bytes: int) -> None:
        self._folder = folder
        self.opened_file: File | None = None
        """The file, while it is open."""
        self._tail = bytearray()
        self._tail_start = 0
        """Index of the first entry in `_tail`."""
        self._written = 0
        """Number of entries in the file. tail_start <= written <= entries."""
        self._torn = False
        """A write failed: the file may contain entries beyond `_written`, all of which are in memory."""
        self._cold: bytearray | bytes = b""
        self._cold_start = 0
        """First entry of the page of older entries that was read last; a lagging reader returns to it."""
        self._dirty = False
        self._is_nameless = False
        """The file was not created yet."""
        self.base_offset = base_offset
        self.entries = 0
        self.max_entries = self.full_at = max_bytes // self.entry_bytes
        """The segment is closed with `full_at` entries."""
        self.page_touched: Callable[[int], None] | None = None
        """Called with the number of each 4 KiB page that a search reads."""

    @property
    def path(self) -> str:
        return self._folder.file(self.base_offset, self.suffix)

    def create(self) -> None:
        """Create an empty file, replacing an existing one."""
        file = self._open()
        if file.size():
            file.truncate(0)
        self._tail, self._tail_start, self._written, self.entries = bytearray(), 0, 0, 0
        self._cold = b""
        self._torn = False
        self._dirty = True
        self._loaded()

    def begin(self) -> None:
        """The index of a new log: its file is created when it is written, synced or sealed."""
        self._is_nameless = self._dirty = True

    def load(self) -> None:
        """Load the entries of the file. Raises `CorruptIndex` if they cannot be an index of this segment."""
        file = self._open()
        size = file.size()
        if size % self.entry_bytes:
            raise CorruptIndex(f"{self.path}: {size} bytes are not a multiple of {self.entry_bytes}")
        entries = self._without_zeros(file, size // self.entry_bytes)
        if entries * self.entry_bytes != size:
            file.truncate(entries * self.entry_bytes)
            self._dirty = True
        self.entries = self._written = self._tail_start = entries
        self._tail, self._cold = bytearray(), b""
        self._loaded()
        self._check()

    def _without_zeros(self, file: File, entries: int) -> int:
        """Number of entries before the zeros of a preallocated file.

        A single zero entry is kept: a time index may begin with timestamp 0 at relative offset 0.
        """
        size = self.entry_bytes
        step = PAGE_BYTES // size
        end = entries
        while end:
            start = max(0, end - step)
            block = file.pread((end - start) * size, start * size).rstrip(b"\0")
            if block:
                end = start + -(-len(block) // size)
                break
            end = start
        return entries if entries - end == 1 else end

    def _loaded(self) -> None:
        """The entries changed other than by an append."""
        raise NotImplementedError

    def _check(self) -> None:
        raise NotImplementedError

    def _open(self) -> File:
        file = self.opened_file
        if file is None:
            file = self._folder.open_for(self, self.path, create=True)
            if self._is_nameless:
                file.truncate(0)
                self._is_nameless = False
                self._folder.new_names += 1
        return file

    def hold_open(self) -> None:
        """Keep the file open while it may be renamed."""
        self._open()

    @property
    def is_open(self) -> bool:
        return self.opened_file is not None

    @property
    def is_full(self) -> bool:
        return self.entries >= self.full_at

    @property
    def size_bytes(self) -> int:
        return self.entries * self.entry_bytes

    @property
    def unwritten_bytes(self) -> int:
        return (self.entries - self._written) * self.entry_bytes

    def write_out(self) -> None:
        """Write new entries to the file. After an OSError nothing is lost: they are still in memory."""
        if self._written == self.entries:
            return
        size = self.entry_bytes
        start = (self._written - self._tail_start) * size
        try:
            self._open().pwrite(self._tail[start:], self._written * size)
        except OSError:
            self._torn = True
            raise
        self._torn = False
        self._written = self.entries
        self._dirty = True
        warm = WARM_SECTION_BYTES // size + 1
        surplus = self.entries - self._tail_start - warm
        if surplus > 0:
            del self._tail[: surplus * size]
            self._tail_start += surplus

    def files_to_sync(self) -> list[File]:
        """Write new entries and return the file if it changed since the last call."""
        self.write_out()
        if not self._dirty:
            return []
        self._dirty = False
        return [self._open()]

    def region(self) -> FileRegion:
        """All entries, in the file."""
        self.write_out()
        return FileRegion(self._open(), 0, self.size_bytes)

    def seal(self) -> None:
        """No more appends: write the entries and free the memory."""
        self.write_out()
        if self._is_nameless:
            self._open()
        self._tail, self._tail_start = bytearray(), self.entries

    def close(self) -> None:
        self._folder.files.forget(self)

    def move_to(self, folder: Folder) -> None:
        """The file has been moved to `folder`."""
        self.close()
        self._folder = folder

    def truncate_to_entries(self, entries: int) -> None:
        size = self.entry_bytes
        if entries >= self.entries:
            return
        if entries < self._written or self._torn:
            written = min(entries, self._written)
            self._open().truncate(written * size)
            self._torn = False
            self._written = written
            self._dirty = True
        if entries >= self._tail_start:
            del self._tail[(entries - self._tail_start) * size :]
        else:
            self._tail, self._tail_start = bytearray(), entries
        self._cold = b""
        self.entries = entries
        self._loaded()

    def entry_bytes_at(self, slot: int) -> bytes:
        """Raw entry number `slot`."""
        size = self.entry_bytes
        if self.page_touched is not None:
            self.page_touched(slot * size // PAGE_BYTES)
        if slot >= self._tail_start:
            start = (slot - self._tail_start) * size
            return bytes(self._tail[start : start + size])
        data = self._open().pread(size, slot * size)
        if len(data) != size:
            raise CorruptIndex(f"{self.path}: ends before entry {slot}")
        return data

    def _floor(self, field: struct.Struct, shift: int, target: int) -> int:
        """Last slot whose field (`shift` bytes into the entry) is at most `target`; -1 if there is none."""
        entries = self.entries
        if not entries:
            return -1
        size = self.entry_bytes
        unpack = field.unpack_from
        first_warm = max(0, entries - 1 - WARM_SECTION_BYTES // size)
        if unpack(self.entry_bytes_at(first_warm), shift)[0] < target:
            low, high = first_warm, entries - 1
        elif unpack(self.entry_bytes_at(0), shift)[0] > target:
            return -1
        else:
            low, high = 0, first_warm
        block: bytearray | bytes = self._tail
        block_start = self._tail_start
        cold = self._cold
        if low < block_start and cold and unpack(cold, shift)[0] <= target < unpack(cold, len(cold) - size + shift)[0]:
            block, block_start = cold, self._cold_start
            low, high = block_start, block_start + len(cold) // size - 1
        while low < high:
            if low < block_start and high - low <= PAGE_BYTES // size:
                # The rest fits into a page: read all of it at once.
                block = self._cold = self._block(low, high)
                block_start = self._cold_start = low
            middle = (low + high + 1) >> 1
            if middle >= block_start:
                if self.page_touched is not None:
                    self.page_touched(middle * size // PAGE_BYTES)
                (found,) = unpack(block, (middle - block_start) * size + shift)
            else:
                (found,) = unpack(self.entry_bytes_at(middle), shift)
            if found > target:
                high = middle - 1
            else:
                low = middle
        return low

    def _block(self, low: int, high: int) -> bytearray:
        """Entries `low` to `high` inclusive, from memory or file."""
        size = self.entry_bytes
        from_file = min(high + 1, self._tail_start)
        data = bytearray(self._open().pread((from_file - low) * size, low * size))
        if len(data) != (from_file - low) * size:
            raise CorruptIndex(f"{self.path}: ends before entry {from_file - 1}")
        return data + self._tail[: (high + 1 - from_file) * size]


class OffsetIndex(EntryFile):
    """Starting points for lookups by offset. 8 bytes per entry."""

    __slots__ = ("last_offset",)

    suffix = OFFSET_INDEX_SUFFIX
    entry_bytes = _OFFSET_ENTRY.size

    def __init__(self, folder: Folder, base_offset: int, max_bytes: int) -> None:
        super().__init__(folder, base_offset, max_bytes)
        self.last_offset = base_offset
        """Offset of the last entry; the base offset if there is none."""

    def _loaded(self) -> None:
        self.last_offset = self.entry(self.entries - 1).offset if self.entries else self.base_offset

    def _check(self) -> None:
        if self.entries and self.last_offset < self.base_offset:
            raise CorruptIndex(f"{self.path}: last offset {self.last_offset} is below the base {self.base_offset}")

    def accepts(self, offset: int) -> bool:
        """True if the offset can be stored relative to the base."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append(self, offset: int, position: int) -> None:
        """`offset` is the last one of the batch at `position`. Changes only memory: see `write_out`."""
        assert not self.entries or offset > self.last_offset, f"{offset} after {self.last_offset}: {self.path}"
        self._tail += _OFFSET_ENTRY.pack(offset - self.base_offset, position)
        self.entries += 1
        self.last_offset = offset

    def entry(self, slot: int) -> OffsetPosition:
        relative, position = _OFFSET_ENTRY.unpack(self.entry_bytes_at(slot))
        return OffsetPosition(self.base_offset + relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`; the start of the segment if there is none."""
        slot = self._floor(_INT32, 0, offset - self.base_offset)
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def lookup_position(self, position: int) -> OffsetPosition:
        """The last entry at or before a file position; the start of the segment if there is none."""
        slot = self._floor(_INT32, 4, position)
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        self.truncate_to_entries(self._floor(_INT32, 0, offset - self.base_offset - 1) + 1)


class TimeIndex(EntryFile):
    """First offsets of records with at least a timestamp. 12 bytes per entry; both fields increase."""

    __slots__ = ("last_entry",)

    suffix = TIME_INDEX_SUFFIX
    entry_bytes = _TIME_ENTRY.size

    def __init__(self, folder: Folder, base_offset: int, max_bytes: int) -> None:
        super().__init__(folder, base_offset, max_bytes)
        self.full_at = self.max_entries - 1
        """One slot is reserved for the entry that closes the segment."""
        self.last_entry = TimestampOffset(-1, base_offset)
        """(-1, base offset) if there is none."""

    def _loaded(self) -> None:
        self.last_entry = self.entry(self.entries - 1) if self.entries else TimestampOffset(-1, self.base_offset)

    def _check(self) -> None:
        if not self.entries:
            return
        if self.last_entry.timestamp < self.entry(0).timestamp:
            raise CorruptIndex(f"{self.path}: the last timestamp is below the first")
        if self.last_entry.offset < self.base_offset:
            raise CorruptIndex(f"{self.path}: last offset {self.last_entry.offset} is below the base")

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry only for a timestamp above the last one. Changes only memory: see `write_out`."""
        last_timestamp, last_offset = self.last_entry
        if timestamp <= last_timestamp:
            return
        assert not self.entries or offset >= last_offset, f"{offset} after {last_offset}: {self.path}"
        self._tail += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)
        self.entries += 1
        self.last_entry = TimestampOffset(timestamp, offset)

    def entry(self, slot: int) -> TimestampOffset:
        timestamp, relative = _TIME_ENTRY.unpack(self.entry_bytes_at(slot))
        return TimestampOffset(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or before `timestamp`; (-1, base offset) if there is none."""
        slot = self._floor(_INT64, 0, timestamp)
        return self.entry(slot) if slot >= 0 else TimestampOffset(-1, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        self.truncate_to_entries(self._floor(_INT32, 8, offset - self.base_offset - 1) + 1)
