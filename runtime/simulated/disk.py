"""The disk as one process sees it: `runtime.world.Disk` over its host's store.

Calls take no simulated time; slow work goes through `run_blocking`, which does.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from barnabas.runtime.simulated.inode import Inode
from barnabas.runtime.simulated.process import SimulatedProcess
from barnabas.runtime.simulated.store import Directory, Store
from barnabas.runtime.world import Bytes


def renamed_point(target: str) -> str:
    """The fault point after a rename: `disk.renamed.quorum-state`, `disk.renamed.*.checkpoint`."""
    name = target.rpartition("/")[2]
    if name.endswith("-delete"):
        return "disk.renamed.*-delete"
    stem, dot, suffix = name.rpartition(".")
    return f"disk.renamed.*.{suffix}" if dot and any(c.isdigit() for c in stem) else f"disk.renamed.{name}"


class Descriptors:
    """The open files of a process and their limit."""

    __slots__ = ("allowed", "used")

    def __init__(self) -> None:
        self.allowed: int | None = None
        """None: without limit."""
        self.used = 0

    def check(self, path: str) -> None:
        """Raises OSError (EMFILE) if none is left."""
        if self.allowed is not None and self.used >= self.allowed:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


class SimulatedFile:
    """An open file of a process."""

    __slots__ = ("_closed", "_descriptors", "_inode", "_process", "_store", "path")

    def __init__(
        self, path: str, inode: Inode, store: Store, process: SimulatedProcess, descriptors: Descriptors
    ) -> None:
        self._descriptors = descriptors
        descriptors.used += 1
        self.path = path
        self._inode = inode
        self._store = store
        self._process = process
        self._closed = False

    def size(self) -> int:
        self._check()
        return len(self._inode.cached)

    def pread(self, count: int, offset: int) -> bytes:
        self._check_read()
        # Through a view: slicing the bytearray itself would copy twice.
        with memoryview(self._inode.cached) as cached:
            return bytes(cached[offset : offset + count])

    def pwrite(self, data: Bytes, offset: int) -> None:
        dies = self._begin_change()
        fault = self._store.strike("write", self.path) if self._store.faults else None
        if dies or fault is not None:
            data = memoryview(data)[: self._store.chance.randint(0, len(data))]
        room = self._put(data, offset)
        if dies:
            self._process.die()
        if fault is not None:
            raise OSError(fault.code, os.strerror(fault.code), self.path)
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def truncate(self, size: int) -> None:
        if self._begin_change():
            self._process.die()
        self._strike("write")
        growth = size - len(self._inode.cached)
        if not self._store.grow(self._inode, growth):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._inode.truncate(size)
        self._inode.modified_ms = self._store.now_ms()

    def sync(self) -> None:
        dies = self._begin_change()
        if dies and self._store.chance.random() < 0.5:
            self._process.die()
        try:
            self._strike("sync")
        except OSError:
            self._inode.lose_dirty()
            raise
        self._inode.sync()
        if dies:
            self._process.die()

    def close(self) -> None:
        self._descriptors.used -= not self._closed
        self._closed = True

    __del__ = close

    def _put(self, data: Bytes, offset: int) -> bool:
        """Write as much as there is room for; False if that is not all."""
        inode, store = self._inode, self._store
        size = len(inode.cached)
        growth = offset + len(data) - size
        fits = True
        if growth > 0 and not store.grow(inode, growth):
            fits = False
            free = max(0, store.capacity_bytes - store.used_bytes)
            data = memoryview(data)[: max(0, size + free - offset)]
            growth = offset + len(data) - size
            if len(data) and growth > 0:
                store.grow(inode, growth)
        if len(data):
            inode.write(data, offset)
            inode.modified_ms = store.now_ms()
        return fits

    def _begin_change(self) -> bool:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._process.about_to_change()

    def _check(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        if not self._process.alive:
            self._process.check_alive()

    def _check_read(self) -> None:
        self._check()
        if self._store.faults:
            self._strike("read")

    def _strike(self, operation: str) -> None:
        fault = self._store.strike(operation, self.path)
        if fault is not None:
            raise OSError(fault.code, os.strerror(fault.code), self.path)


class SimulatedDisk:
    """The disk of a process."""

    def __init__(self, store: Store, process: SimulatedProcess, locks: dict[str, SimulatedProcess]) -> None:
        """`locks`: lock files of this host and their holders; a dead process holds none."""
        self._store = store
        self._process = process
        self._locks = locks
        self.descriptors = Descriptors()
        self._spare_some: list[Callable[[], bool]] = []

    def when_short(self, spare_some: Callable[[], bool]) -> None:
        self._spare_some.append(spare_some)

    def _take_descriptor(self, path: str) -> None:
        """A file is about to be opened, for a moment or for longer."""
        self._strike("open", path)
        while True:
            try:
                return self.descriptors.check(path)
            except OSError:
                if not any(each() for each in self._spare_some):
                    raise

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self._process.check_alive()
        self._take_descriptor(path)
        if create and self._store.find(path) is None:
            self._begin_change("write", path)
            inode = self._store.create(path)
        else:
            inode = self._store.file(path)
        return SimulatedFile(path, inode, self._store, self._process, self.descriptors)

    def exists(self, path: str) -> bool:
        self._process.check_alive()
        return self._store.find(path) is not None

    def is_directory(self, path: str) -> bool:
        self._process.check_alive()
        return isinstance(self._store.find(path), Directory)

    def list(self, path: str) -> list[str]:
        self._process.check_alive()
        self._strike("read", path)
        return sorted(self._store.directory(path).entries)

    def make_directories(self, path: str) -> None:
        self._begin_change("write", path)
        self._store.make_directories(path)

    def rename(self, source: str, target: str) -> None:
        self._begin_change("write", target)
        self._store.rename(source, target)
        # Files are replaced by a rename, so in a simulation each rename is a fault point.
        self._process.fault_point(renamed_point(target))

    def remove(self, path: str) -> None:
        self._begin_change("write", path)
        self._store.remove(path)

    def remove_tree(self, path: str) -> None:
        self._begin_change("write", path)
        self._store.remove_tree(path)

    def sync_soon(self, path: str) -> None:
        self._process.check_alive()

    def sync_together(self, paths: Sequence[str], *, since: str | None = None) -> Sequence[str]:
        for path in paths[:1]:
            self._take_descriptor(path)
            self._begin_change("sync", path)
            self._store.sync_all()
        return ()

    def sync_directory(self, path: str) -> None:
        self._take_descriptor(path)
        self._begin_change("sync", path)
        self._store.sync_directory(path)

    def size(self, path: str) -> int:
        self._process.check_alive()
        return len(self._store.file(path).cached)

    def modified_ms(self, path: str) -> int:
        self._process.check_alive()
        return self._store.file(path).modified_ms

    def changed_ns(self, path: str) -> int:
        self._process.check_alive()
        entry = self._store.find(path)
        return entry.changes if isinstance(entry, Directory) else self._store.file(path).modified_ms * 1_000_000

    def read_bytes(self, path: str) -> bytes:
        self._process.check_alive()
        self._take_descriptor(path)
        self._strike("read", path)
        return bytes(self._store.file(path).cached)

    def space_bytes(self, path: str) -> tuple[int, int]:
        self._process.check_alive()
        store = self._store
        return store.capacity_bytes, max(0, store.capacity_bytes - store.used_bytes)

    def boot_id(self) -> str:
        return f"boot-{self._store.power_cuts}"

    def lock(self, path: str) -> Callable[[], None]:
        holder = self._locks.get(path)
        if holder is not None and holder.alive:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.open(path, create=True)
        self._locks[path] = process = self._process

        def release() -> None:
            if self._locks.get(path) is process:
                del self._locks[path]

        return release

    def _begin_change(self, operation: str, path: str) -> None:
        if self._process.about_to_change():
            self._process.die()
        self._strike(operation, path)

    def _strike(self, operation: str, path: str) -> None:
        if self._store.faults:
            fault = self._store.strike(operation, path)
            if fault is not None:
                raise OSError(fault.code, os.strerror(fault.code), path)
