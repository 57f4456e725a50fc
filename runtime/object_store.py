"""The store of whole objects by key, as nodes see it: puts, reads of ranges, lists, deletions.

Has the interface and its errors. `runtime/stores` has the real stores, `runtime/simulated/object_store.py` the
simulated one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class ReadableFile(Protocol):
    """The part of `runtime.world.File` that a store uses."""

    @property
    def path(self) -> str: ...

    def pread(self, count: int, offset: int) -> bytes: ...


class Region(Protocol):
    """A `runtime.world.FileRegion`."""

    @property
    def file(self) -> ReadableFile: ...
    @property
    def offset(self) -> int: ...
    @property
    def count(self) -> int: ...
    def __len__(self) -> int: ...


Part = bytes | bytearray | memoryview | Region
"""One piece of an object, as one of a frame is a `runtime.world.Chunk`."""


class StoreError(Exception):
    """The store failed in a way that may pass: try again later. `str()` is one line: what, key, cause.

    The effect of a failed call is unknown: a put or a deletion may have happened.
    """


class NoSuchObject(StoreError):
    """There is no object with this key."""


class ObjectExists(StoreError):
    """`put` with `if_absent` found an object with this key."""


class StoreRefused(StoreError):
    """Wrong credentials, forbidden, no such bucket: somebody has to change something first."""


class StoredObject(NamedTuple):
    """One line of a list."""

    key: str
    size_bytes: int
    modified_ms: int
    """By the clock of the store."""


class ObjectStore(Protocol):
    """Objects by key: names in ASCII, separated by `/`. Every call raises `StoreError`."""

    async def put(self, key: str, parts: Sequence[Part], *, if_absent: bool = False) -> None:
        """Store an object of these bytes: whole or not at all. Replaces an older one, unless `if_absent`.

        Returns when it is durable and when its checksum was compared. Raises `ObjectExists`, and OSError if a file of
        `parts` cannot be read.
        """

    async def get(self, key: str, start: int = 0, count: int | None = None) -> bytes:
        """Up to `count` bytes from `start`, by default all; fewer only at the end. Raises `NoSuchObject`."""

    async def size(self, key: str) -> int:
        """Bytes of an object. Raises `NoSuchObject`."""

    async def delete(self, key: str) -> None:
        """Remove an object. It is no error if there is none."""

    async def list(self, prefix: str) -> list[StoredObject]:
        """Objects whose keys begin with `prefix`, sorted by key. A list may be behind puts and deletions."""

    async def close(self) -> None:
        """Give up connections and threads; no call may follow."""


def pieces_of(parts: Sequence[Part], most_bytes: int) -> Iterator[bytes | memoryview]:
    """The bytes of `parts` in pieces of at most `most_bytes`. Reads files: call it where that may take time.

    Raises OSError of a read, and `StoreError` for a file that ends too early.
    """
    for part in parts:
        for start in range(0, len(part), most_bytes):
            count = min(most_bytes, len(part) - start)
            if isinstance(part, bytes | bytearray | memoryview):
                yield memoryview(part)[start : start + count]
                continue
            piece = part.file.pread(count, part.offset + start)
            if len(piece) < count:
                end = part.offset + start + len(piece)
                raise StoreError(f"{part.file.path} ends at byte {end}, not {part.offset + part.count}")
            yield piece


def size_of(parts: Sequence[Part]) -> int:
    """Bytes in all parts."""
    return sum(map(len, parts))
