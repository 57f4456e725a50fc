"""An object store in a directory, such as one that all brokers mount by NFS. Keys are paths below it.

An object is written to a file of its own in `.partial`, synced, read back and compared by checksum, and then renamed:
it is there whole or not at all, also after a crash. A put that must not replace links instead, which fails where there
is one. `verify=full` drops the pages of the file before it is read back, so that the bytes come from the disk or from
the server. What a crash leaves in `.partial` is removed a day later.

Kafka's LocalTieredStorage uses the same names, so one can read the directory of the other. It takes every directory for
a partition's: in a directory of its own `.partial` is beside it, `kafka-tiered-storage.partial`.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import trio

from barnabas.protocol.records.crc import crc32c
from barnabas.runtime.object_store import (
    NoSuchObject,
    ObjectExists,
    Part,
    StoredObject,
    StoreError,
    StoreRefused,
    pieces_of,
    size_of,
)
from barnabas.runtime.world import Bytes, RunBlocking
from barnabas.settings.object_store import StoreSettings

T = TypeVar("T")
Listing = list[StoredObject]

PARTIAL = ".partial"
_PIECE_BYTES = 1 << 20
_LEAST_BYTES_PER_MS = 1000
"""A store that is slower counts as away."""
_STALE_SECONDS = 24 * 3600


class DirectoryStore:
    """See `runtime.object_store.ObjectStore`. Every call runs in a thread."""

    def __init__(self, settings: StoreSettings, run_blocking: RunBlocking) -> None:
        """The directory must exist unless it is created: one that is not mounted must not look like an empty store."""
        self._root = settings.directory
        self._creates_root = settings.creates_directory
        self._partial = self._root + PARTIAL if settings.creates_directory else os.path.join(self._root, PARTIAL)
        self._verifies_fully = settings.verify == "full"
        self._timeout_ms = settings.timeout_ms
        self._run_blocking = run_blocking
        self._is_swept = False

    async def put(self, key: str, parts: Sequence[Part], *, if_absent: bool = False) -> None:
        await self._run(f"put {key}", lambda: self._put(key, parts, if_absent), size_of(parts))

    async def get(self, key: str, start: int = 0, count: int | None = None) -> bytes:
        return await self._run(f"get {key}", lambda: self._get(key, start, count), count or 0)

    async def size(self, key: str) -> int:
        return await self._run(f"size {key}", lambda: self._size(key))

    async def delete(self, key: str) -> None:
        await self._run(f"delete {key}", lambda: self._delete(key))

    async def list(self, prefix: str) -> list[StoredObject]:
        return await self._run(f"list {prefix}", lambda: self._list(prefix))

    async def close(self) -> None:
        """Nothing is open between calls."""

    async def _run(self, call: str, work: Callable[[], T], byte_count: int = 0) -> T:
        """Raises `StoreError` when a server that holds the directory does not answer."""
        deadline_ms = self._timeout_ms + byte_count // _LEAST_BYTES_PER_MS
        try:
            with trio.fail_after(deadline_ms / 1000):
                return await self._run_blocking(work)
        except trio.TooSlowError:
            raise StoreError(f"{call}: no answer in {deadline_ms} ms") from None

    # --- in a thread ---

    def _put(self, key: str, parts: Sequence[Part], if_absent: bool) -> None:
        path = self._path(key)
        with self._errors("put", key):
            partial = self._new_partial()
            try:
                checksum = _write(partial, _reported(parts))
                if _checksum_of(partial, from_disk=self._verifies_fully) != checksum:
                    raise StoreError(f"put {key}: the bytes that were read back differ from those that were written")
                self._make_directories(os.path.dirname(path))
                if if_absent:
                    os.link(partial, path)
                else:
                    os.replace(partial, path)
                _sync_directory(os.path.dirname(path))
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(partial)

    def _get(self, key: str, start: int, count: int | None) -> bytes:
        with self._errors("get", key), open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read() if count is None else file.read(count)

    def _size(self, key: str) -> int:
        with self._errors("size", key):
            status = os.stat(self._path(key))
            if stat.S_ISDIR(status.st_mode):
                raise FileNotFoundError
            return status.st_size

    def _delete(self, key: str) -> None:
        path = self._path(key)
        with self._errors("delete", key):
            try:
                os.unlink(path)
                _sync_directory(os.path.dirname(path))
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()

    def _list(self, prefix: str) -> Listing:
        with self._errors("list", prefix):
            self._check_root()
            return sorted(each for each in self._walk(_directory_of(prefix)) if each.key.startswith(prefix))

    def _walk(self, directory: str) -> Iterator[StoredObject]:
        """Objects below a directory, given as a path from the root."""
        try:
            entries = sorted(os.scandir(os.path.join(self._root, directory)), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            key = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                if key != PARTIAL:
                    yield from self._walk(key)
                continue
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                status = entry.stat()
                yield StoredObject(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def _path(self, key: str) -> str:
        names = key.split("/")
        if not all(names) or any(name in (".", "..", PARTIAL) for name in names) or "\0" in key:
            raise StoreRefused(f"{key!r} is not a key: allowed are names separated by one /, without . and ..")
        return os.path.join(self._root, *names)

    @contextmanager
    def _errors(self, operation: str, key: str) -> Iterator[None]:
        """Raise OSError of the store as `StoreError`."""
        try:
            yield
        except _UnreadPart as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            self._check_root()
            if operation == "put":
                raise StoreError(f"put {key}: {error.strerror or error}") from error
            raise NoSuchObject(f"{operation} {key}: there is no such object") from error
        except FileExistsError as error:
            raise ObjectExists(f"{operation} {key}: there is an object with this key") from error
        except OSError as error:
            refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            kind = StoreRefused if refused else StoreError
            raise kind(f"{operation} {key}: {error.strerror or error}") from error

    def _check_root(self) -> None:
        if self._creates_root:
            os.makedirs(self._root, exist_ok=True)
        elif not os.path.isdir(self._root):
            raise StoreRefused(f"{self._root} is not a directory: create or mount it")

    def _new_partial(self) -> str:
        """A new, empty file on the same volume."""
        self._check_root()
        with suppress(FileExistsError):
            os.mkdir(self._partial)
        descriptor, path = tempfile.mkstemp(dir=self._partial)
        os.fchmod(descriptor, 0o644)
        os.close(descriptor)
        if not self._is_swept:
            self._is_swept = True
            _sweep(self._partial, os.stat(path).st_mtime - _STALE_SECONDS)
        return path

    def _make_directories(self, path: str) -> None:
        """Make a directory and those above it, durably."""
        if os.path.isdir(path):
            return
        above = os.path.dirname(path)
        self._make_directories(above)
        with suppress(FileExistsError):
            os.mkdir(path)
        _sync_directory(above)


def _directory_of(prefix: str) -> str:
    return prefix.rpartition("/")[0]


class _UnreadPart(Exception):
    """A file of the caller could not be read; `__cause__` is its OSError."""


def _reported(parts: Sequence[Part]) -> Iterator[Bytes]:
    """Pieces of the parts. The caller's OSError must not look like one of the store."""
    try:
        yield from pieces_of(parts, _PIECE_BYTES)
    except OSError as error:
        raise _UnreadPart from error


def _write(path: str, pieces: Iterator[Bytes]) -> int:
    """Write and sync a file; returns the checksum of its bytes."""
    checksum = 0
    with open(path, "wb", buffering=0) as file:
        for piece in pieces:
            checksum = crc32c(piece, checksum)
            written = file.write(piece)
            while written < len(piece):
                written += file.write(memoryview(piece)[written:])
        os.fsync(file.fileno())
    return checksum


def _checksum_of(path: str, *, from_disk: bool) -> int:
    checksum = 0
    with open(path, "rb", buffering=0) as file:
        if from_disk:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while piece := file.read(_PIECE_BYTES):
            checksum = crc32c(piece, checksum)
    return checksum


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(directory: str, before_seconds: float) -> None:
    """Remove files that were last written before a time by the clock of the volume."""
    for entry in list(os.scandir(directory)):
        with suppress(FileNotFoundError):
            if entry.stat().st_mtime < before_seconds:
                os.unlink(entry.path)
