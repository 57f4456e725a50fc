"""The machine's disk. Every call goes straight to the operating system and raises its OSError.

Caches nothing. Knows paths and bytes; the meaning of the files is the business of `storage`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.runtime.world import Bytes

T = TypeVar("T")

_sync_data = getattr(os, "fdatasync", os.fsync)
"""fdatasync also makes a changed size durable, and saves the journal a commit for the times of the file."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Linux draws one when it starts; containers see that of their host."""


_sync_volume = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""Linux only."""

_REPORTS_LOST_WRITES = (5, 8)
"""The first release of Linux whose syncfs fails if anything could not be written."""

_READ_BYTES = 1 << 16

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def _linux_release() -> tuple[int, int]:
    """(0, 0) if it is unknown."""
    major, _, rest = os.uname().release.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _volume_of(path: str) -> int | None:
    """None if there is nothing at `path`."""
    try:
        return os.stat(path).st_dev
    except FileNotFoundError:
        return None


class RealFile:
    """One open file descriptor, closed with the last reference to it at the latest."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The descriptor, for sendfile; raises OSError (EBADF) once closed."""
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def pread(self, count: int, offset: int) -> bytes:
        descriptor = self._descriptor if self._descriptor >= 0 else self.fileno()
        data = os.pread(descriptor, count, offset)
        if len(data) == count or not data:
            return data
        pieces = [data]
        taken = len(data)
        while taken < count and (data := os.pread(descriptor, count - taken, offset + taken)):
            pieces.append(data)
            taken += len(data)
        return b"".join(pieces)

    def pwrite(self, data: Bytes, offset: int) -> None:
        descriptor = self._descriptor if self._descriptor >= 0 else self.fileno()
        total = len(data)
        written = os.pwrite(descriptor, data, offset)
        while written < total:
            written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def sync(self) -> None:
        _sync_data(self.fileno())

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close


class RealDisk:
    """The file system as it is mounted."""

    def __init__(self) -> None:
        self._spare_some: list[Callable[[], bool]] = []
        self._locks: dict[str, int] = {}
        """Descriptors of the locks that this has."""

    def when_short(self, spare_some: Callable[[], bool]) -> None:
        self._spare_some.append(spare_some)

    def _with_descriptor(self, call: Callable[[], T]) -> T:
        """The result of a call that needs a descriptor for a moment or for longer."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS or not any(each() for each in self._spare_some):
                    raise

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, self._open(path, flags))

    def _open(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise
        return self._with_descriptor(lambda: os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(self._with_descriptor(lambda: os.listdir(path)))

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        self._with_descriptor(lambda: shutil.rmtree(path))

    def sync_directory(self, path: str) -> None:
        descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_soon(self, path: str) -> None:
        if _sync_volume is None:
            return
        descriptor = self._open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync_volume(descriptor)
        finally:
            os.close(descriptor)

    def sync_together(self, paths: Sequence[str], *, since: str | None = None) -> Sequence[str]:
        if _sync_volume is None or not paths or _linux_release() < _REPORTS_LOST_WRITES:
            return paths
        # The kernel reports to each open file what was lost since it was opened.
        held = None if since is None else self._locks[since]
        descriptor = self._open(paths[0], os.O_RDONLY | os.O_CLOEXEC) if held is None else held
        try:
            volume = os.fstat(descriptor).st_dev
            elsewhere = [path for path in paths if _volume_of(path) not in (volume, None)]
            if _sync_volume(descriptor):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), paths[0])
        finally:
            if held is None:
                os.close(descriptor)
        return elsewhere

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def changed_ns(self, path: str) -> int:
        return os.stat(path).st_ctime_ns

    def read_bytes(self, path: str) -> bytes:
        descriptor = self._open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = []
            while data := os.read(descriptor, _READ_BYTES):
                pieces.append(data)
            return b"".join(pieces)
        finally:
            os.close(descriptor)

    def boot_id(self) -> str:
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def space_bytes(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        descriptor = self._open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            # flock belongs to this open file, so two nodes in one process exclude each other as well.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        file = RealFile(path, descriptor)
        self._locks[path] = descriptor

        def release() -> None:
            self._locks.pop(path, None)
            file.close()

        return release
