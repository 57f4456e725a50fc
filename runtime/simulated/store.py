"""The disk of one host, and its faults. It outlives the processes that use it.

Files have a cached and a durable image (`inode`), and so have directories: every creation, rename and removal is a
change that becomes durable when one of its directories is synced, and that a power cut keeps or loses as a whole.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.simulated.inode import Inode

DEFAULT_CAPACITY_BYTES = 64 * 1024**3


class Directory:
    """Entries by name, now and after a power cut."""

    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.changes = 0
        """Number of times that entries changed; stands for the time of the last change."""


Entry = Inode | Directory


def _nowhere(name: str, content: bytearray) -> Container[int]:
    return ()


@dataclass(slots=True)
class _Change:
    """Entries that change together: (directory, name, old entry or None, new entry or None)."""

    parts: list[tuple[Directory, str, Entry | None, Entry | None]]

    def apply(self) -> None:
        for directory, name, old, new in self.parts:
            if new is not None:
                directory.durable[name] = new
            elif directory.durable.get(name) is old:
                directory.durable.pop(name, None)


@dataclass(slots=True)
class DiskFault:
    """Operations that fail with `code`: "open", "read", "write" or "sync" of the paths below `prefix`."""

    operations: frozenset[str]
    prefix: str = ""
    code: int = errno.EIO
    probability: float = 1.0
    remaining: int | None = None
    """Number of times that it still strikes; None: without limit."""


@dataclass(slots=True)
class Store:
    """The disk of one host: a tree of two images, a capacity, and faults."""

    chance: Stream
    now_ms: Callable[[], int]
    capacity_bytes: int = DEFAULT_CAPACITY_BYTES
    used_bytes: int = 0
    refused: int = 0
    """Number of writes without room."""
    faults: list[DiskFault] = field(default_factory=list)
    power_cuts: int = 0
    garbage: bool = False
    """The next power cut damages some of what was being written."""
    unguarded: Callable[[str, bytearray], Container[int]] = _nowhere
    """Takes the name and content of a file; returns bytes in which no checksum would reveal a flipped bit. Garbage
    spares them."""
    root: Directory = field(default_factory=Directory)
    _pending: list[_Change] = field(default_factory=list)

    # --- what a process does ---

    def find(self, path: str) -> Entry | None:
        """The entry at `path`, or None."""
        entry: Entry | None = self.root
        for name in _names(path):
            if not isinstance(entry, Directory):
                return None
            entry = entry.entries.get(name)
        return entry

    def file(self, path: str) -> Inode:
        entry = self.find(path)
        if entry is None:
            raise _error(errno.ENOENT, path)
        if isinstance(entry, Directory):
            raise _error(errno.EISDIR, path)
        return entry

    def directory(self, path: str) -> Directory:
        entry = self.find(path)
        if entry is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(entry, Directory):
            raise _error(errno.ENOTDIR, path)
        return entry

    def create(self, path: str) -> Inode:
        """A new empty file."""
        parent, name = self._parent(path)
        inode = Inode(self.now_ms())
        self._change([(parent, name, None, inode)])
        return inode

    def make_directories(self, path: str) -> None:
        entry: Directory = self.root
        for name in _names(path):
            inner = entry.entries.get(name)
            if inner is None:
                inner = Directory()
                self._change([(entry, name, None, inner)])
            elif not isinstance(inner, Directory):
                raise _error(errno.EEXIST, path)
            entry = inner

    def rename(self, source: str, target: str) -> None:
        source_parent, source_name = self._parent(source)
        target_parent, target_name = self._parent(target)
        moved = source_parent.entries.get(source_name)
        if moved is None:
            raise _error(errno.ENOENT, source)
        replaced = target_parent.entries.get(target_name)
        if replaced is moved:
            return
        if isinstance(replaced, Directory):
            if isinstance(moved, Inode):
                raise _error(errno.EISDIR, target)
            if replaced.entries:
                raise _error(errno.ENOTEMPTY, target)
        elif isinstance(replaced, Inode) and isinstance(moved, Directory):
            raise _error(errno.ENOTDIR, target)
        self._change(
            [
                (target_parent, target_name, replaced, moved),
                (source_parent, source_name, moved, None),
            ]
        )
        self._unlink(replaced)

    def remove(self, path: str) -> None:
        """Remove a file."""
        inode = self.file(path)
        parent, name = self._parent(path)
        self._change([(parent, name, inode, None)])
        self._unlink(inode)

    def remove_tree(self, path: str) -> None:
        """Remove a directory, its contents first: a power cut may leave any part of it."""
        for name in sorted(self.directory(path).entries):
            inner = posixpath.join(path, name)
            if isinstance(self.find(inner), Directory):
                self.remove_tree(inner)
            else:
                self.remove(inner)
        parent, name = self._parent(path)
        self._change([(parent, name, self.directory(path), None)])

    def sync_directory(self, path: str) -> None:
        """Make the changes in this directory durable, a rename together with its other end."""
        directory = self.directory(path)
        kept = []
        for change in self._pending:
            if any(part[0] is directory for part in change.parts):
                change.apply()
            else:
                kept.append(change)
        self._pending = kept

    def sync_all(self) -> None:
        """Make everything durable."""
        for change in self._pending:
            change.apply()
        self._pending = []
        for _, inode in self.files():
            inode.sync()

    def grow(self, inode: Inode, by_bytes: int) -> bool:
        """Account for a file's growth; False if there is no room for it."""
        if inode.linked:
            if self.used_bytes + by_bytes > self.capacity_bytes:
                self.refused += 1
                return False
            self.used_bytes += by_bytes
        return True

    def strike(self, operation: str, path: str) -> DiskFault | None:
        """The fault that this operation meets, if any."""
        for fault in self.faults:
            if operation in fault.operations and path.startswith(fault.prefix) and fault.remaining != 0:
                if fault.probability < 1.0 and self.chance.random() >= fault.probability:
                    continue
                if fault.remaining is not None:
                    fault.remaining -= 1
                return fault
        return None

    # --- what a nemesis does ---

    def prepare_directories(self, path: str) -> None:
        """Make directories as if they were there, durably, before any node started."""
        self.make_directories(path)
        names = _names(path)
        for depth in range(len(names)):
            self.sync_directory("/" + "/".join(names[:depth]))

    def fail(
        self, *operations: str, prefix: str = "", probability: float = 1.0, remaining: int | None = None
    ) -> DiskFault:
        """Let "read", "write" or "sync" fail with EIO from now on. Returns the fault; remove it from `faults` to repair
        the disk."""
        fault = DiskFault(frozenset(operations), prefix, errno.EIO, probability, remaining)
        self.faults.append(fault)
        return fault

    @property
    def pending_changes(self) -> int:
        """Number of creations, renames and removals that a power cut keeps or loses, each as a whole."""
        return len(self._pending)

    def power_cut(self, kept: Container[int] | None = None) -> None:
        """Return to the durable state, with a random part of what was not durable. `kept`: numbers of the pending
        changes that the disk keeps, oldest first from 0; None draws them as well.
        """
        self.power_cuts += 1
        for number, change in enumerate(self._pending):
            if number in kept if kept is not None else self.chance.random() < 0.5:
                change.apply()
        self._pending.clear()
        self.used_bytes = 0
        self._restore(self.root)
        self.garbage = False

    def flip_bits(self, path: str, offset: int, count: int) -> None:
        """Bit rot: change one bit in each of `count` bytes from `offset`, in both images."""
        inode = self.file(path)
        for position in range(offset, min(offset + count, len(inode.cached))):
            bit = 1 << self.chance.randrange(8)
            inode.cached[position] ^= bit
            if position < len(inode.durable):
                inode.durable[position] ^= bit

    def wipe(self) -> None:
        """A new, empty disk."""
        self.root = Directory()
        self._pending.clear()
        self.used_bytes = 0

    def files(self, path: str = "/") -> Iterator[tuple[str, Inode]]:
        """Every file below `path`, sorted."""
        for name, entry in sorted(self.directory(path).entries.items()):
            inner = posixpath.join(path, name)
            if isinstance(entry, Directory):
                yield from self.files(inner)
            else:
                yield inner, entry

    # --- inside ---

    def _parent(self, path: str) -> tuple[Directory, str]:
        names = _names(path)
        if not names:
            raise _error(errno.EBUSY, path)
        return self.directory("/" + "/".join(names[:-1])), names[-1]

    def _change(self, parts: list[tuple[Directory, str, Entry | None, Entry | None]]) -> None:
        for directory, name, _, new in parts:
            directory.changes += 1
            if new is None:
                directory.entries.pop(name)
            else:
                directory.entries[name] = new
        self._pending.append(_Change(parts))

    def _unlink(self, entry: Entry | None) -> None:
        if isinstance(entry, Inode) and entry.linked:
            entry.linked = False
            self.used_bytes -= len(entry.cached)

    def _restore(self, directory: Directory) -> None:
        directory.changes += directory.entries != directory.durable
        directory.entries = dict(directory.durable)
        for name, entry in sorted(directory.entries.items()):
            if isinstance(entry, Directory):
                self._restore(entry)
            else:
                spared = self.unguarded(name, entry.cached) if self.garbage else ()
                entry.power_cut(self.chance, garbage=self.garbage, spared=spared)
                entry.linked = True
                self.used_bytes += len(entry.cached)


@lru_cache(maxsize=8192)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in posixpath.normpath(path).split("/") if name not in ("", "."))


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
