"""The transaction index of a segment: aborted transactions whose marker is in the segment (KIP-98).

A read_committed consumer gets the list of aborted transactions in what it reads, and drops their records itself.
Entries are Kafka's: 34 bytes, big-endian: version, producer id, first offset, offset of the marker, and the last stable
offset after it. The last field ends a search: transactions with a later marker begin at or after it. Most segments have
no aborted transaction and no index file.

As with the other indexes, the last entries are in memory until they are written out, and the index of an unflushed
segment is rebuilt. But an empty or missing file means that nothing was aborted, so that state must not exist during a
rebuild: the old file stays until the new one is durable. Knows no segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.runtime.world import File
from barnabas.storage.checkpoints import write_durably
from barnabas.storage.folder import Folder
from barnabas.storage.indexes import PAGE_BYTES, CorruptIndex, EntryFile
from barnabas.storage.names import TRANSACTION_INDEX_SUFFIX

_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">q")
_LAST_OFFSET_AT = 18
_VERSION = 0
_ENTRIES_AT_ONCE = PAGE_BYTES // _ENTRY.size

ENTRY_BYTES = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """One entry."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    last_stable_offset: int
    """Once the marker is replicated."""


class AbortedIndex(EntryFile):
    """Entries in the order of their markers."""

    __slots__ = ("_exists", "is_stale", "last_offset", "name_is_new")

    suffix = TRANSACTION_INDEX_SUFFIX
    entry_bytes = _ENTRY.size

    def __init__(self, folder: Folder, base_offset: int) -> None:
        super().__init__(folder, base_offset, 0)
        self._exists = False
        self.name_is_new = False
        """The file was created and its directory not synced since; cleared by the caller that syncs it."""
        self.is_stale = False
        """The entries must be rebuilt from the segment's batches and the producer state."""
        self.last_offset = base_offset - 1
        """Offset of the last marker."""

    def create(self) -> None:
        """Start without entries; an existing file is emptied."""
        self._exists = self._folder.disk.exists(self.path)
        if self._exists:
            super().create()
            return
        self._forget()

    def start_rebuild(self) -> None:
        """Clear the entries for a rebuild; the file is kept until `finish_rebuild`."""
        self.close()
        self._exists = self._folder.disk.exists(self.path)
        self._forget()
        self.is_stale = True

    def finish_rebuild(self) -> None:
        """The entries are rebuilt: replace the file. A crash leaves the old or the new one."""
        self.is_stale = False
        if self._exists and self._folder.disk.read_bytes(self.path) == self._tail:
            # It may not be durable.
            self._dirty = True
        elif self._exists or self.entries:
            write_durably(self._folder.disk, self.path, bytes(self._tail))
            self._exists = True
        self._written = self.entries

    def _forget(self) -> None:
        self._tail, self._tail_start, self._written, self.entries = bytearray(), 0, 0, 0
        self._cold = b""
        self._dirty = self._torn = False
        self._loaded()

    def load(self) -> None:
        """Load the entries of the file, if it exists. Raises `CorruptIndex` if they do not fit the segment."""
        self._exists = self._folder.disk.exists(self.path)
        if self._exists:
            super().load()

    def _open(self) -> File:
        if not self._exists:
            self._exists = self.name_is_new = True
        return super()._open()

    def _loaded(self) -> None:
        self.last_offset = self.entry(self.entries - 1).last_offset if self.entries else self.base_offset - 1

    def _check(self) -> None:
        last_offset = self.base_offset - 1
        for entry in self:
            if not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= last_offset:
                raise CorruptIndex(f"{self.path}: {entry} after offset {last_offset}")
            last_offset = entry.last_offset

    def append(self, entry: AbortedTransaction) -> None:
        """Changes only memory: see `write_out`."""
        assert entry.last_offset > self.last_offset, f"{entry} after {self.last_offset}: {self.path}"
        self._tail += _ENTRY.pack(_VERSION, *entry)
        self.entries += 1
        self.last_offset = entry.last_offset

    def entry(self, slot: int) -> AbortedTransaction:
        return _decode(self.entry_bytes_at(slot), 0, self.path)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self._from(0)

    def _from(self, slot: int) -> Iterator[AbortedTransaction]:
        while slot < self.entries:
            if slot >= self._tail_start:
                end, block = self.entries, self._tail[(slot - self._tail_start) * ENTRY_BYTES :]
            else:
                end = min(slot + _ENTRIES_AT_ONCE, self._tail_start)
                block = self._block(slot, end - 1)
            for position in range(0, len(block), ENTRY_BYTES):
                yield _decode(block, position, self.path)
            slot = end

    def collect(self, from_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Transactions with records or their marker in [from_offset, upper_offset), and whether later segments cannot
        contain any more. Raises OSError, `CorruptIndex`.
        """
        found: list[AbortedTransaction] = []
        if not self.entries:
            return found, False
        for entry in self._from(self._floor(_LAST_OFFSET, _LAST_OFFSET_AT, from_offset - 1) + 1):
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Remove the markers at or above `offset`."""
        self.truncate_to_entries(self._floor(_LAST_OFFSET, _LAST_OFFSET_AT, offset - 1) + 1)


def _decode(data: bytes | bytearray, position: int, path: str) -> AbortedTransaction:
    version, *fields = _ENTRY.unpack_from(data, position)
    if version != _VERSION:
        raise CorruptIndex(f"{path}: an entry of version {version}")
    return AbortedTransaction(*fields)


def read_entries(data: bytes, path: str) -> Iterator[AbortedTransaction]:
    """Parse a file. Raises `CorruptIndex`, after the entries before the damage."""
    for position in range(0, len(data), ENTRY_BYTES):
        if position + ENTRY_BYTES > len(data):
            raise CorruptIndex(f"{path}: {len(data)} bytes are not a multiple of {ENTRY_BYTES}")
        yield _decode(data, position, path)
