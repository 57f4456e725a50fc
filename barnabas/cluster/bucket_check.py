"""Checks what an object store promises: one finding per property, by puts, reads and lists of its own objects.

The objects are below a prefix that nobody else uses, and are removed at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

import trio

from barnabas.runtime.object_store import NoSuchObject, ObjectExists, ObjectStore, StoreError, StoreRefused
from barnabas.runtime.world import Chance
from barnabas.settings.object_store import StoreSettings

Open = Callable[[StoreSettings], ObjectStore]

_SMALL_BYTES = 100_000
_LARGE_BYTES = (20 << 20) + 1
"""Three parts of a multipart upload."""
_RACES = 20
_WRITERS = 8
_OVERWRITES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one property."""

    property: str
    verdict: Literal["ok", "note", "FAIL"]
    """A note is no failure: tiered storage works, but somebody should know."""
    text: str = ""

    def __str__(self) -> str:
        return f"{self.verdict:<5} {self.property}" + (f": {self.text}" if self.text else "")


class _Broken(Exception):
    """A promise is not kept; the text says which."""


async def check_bucket(settings: StoreSettings, open_store: Open, chance: Chance) -> AsyncIterator[Finding]:
    """Yields findings as they are made. A store that cannot be used at all has only the first."""
    store = open_store(settings)
    prefix = f"barnabas-check-{chance.randbytes(8).hex()}/"
    check = _Check(store, prefix, chance)
    first = await _judge("put, verified by checksum", check.put)
    yield first
    if first.verdict != "FAIL":
        for name, promise in check.promises():
            yield await _judge(name, promise)
        yield await _wrong_credentials(settings, open_store, prefix)
        yield await _judge("removal of what was written", check.clean_up)
    await store.close()


async def _judge(name: str, promise: Callable[[], Awaitable[str]]) -> Finding:
    try:
        return Finding(name, "ok", await promise())
    except _Broken as broken:
        return Finding(name, "FAIL", str(broken))
    except StoreError as error:
        return Finding(name, "FAIL", str(error))


async def _wrong_credentials(settings: StoreSettings, open_store: Open, prefix: str) -> Finding:
    name = "wrong credentials are refused"
    if settings.is_directory:
        return Finding(name, "ok", "a directory has none; its permissions count")
    store = open_store(replace(settings, access_key="barnabas-check", secret_key="wrong", retries=0))
    try:
        await store.put(prefix + "wrong", [b"x"])
    except StoreRefused:
        return Finding(name, "ok")
    except StoreError as error:
        return Finding(name, "note", f"unexpected answer: {error}")
    finally:
        await store.close()
    return Finding(name, "note", "the store takes any credentials")


class _Check:
    """The promises, in an order in which each has what it needs."""

    def __init__(self, store: ObjectStore, prefix: str, chance: Chance) -> None:
        self._store = store
        self._prefix = prefix
        self._chance = chance
        self._small = chance.randbytes(_SMALL_BYTES)
        self._written: dict[str, None] = {}
        """Keys to remove: a list may be behind."""

    def promises(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        return [
            ("get, whole and ranged", self.get),
            ("size", self.size),
            ("overwrite, read after write", self.overwrite),
            ("list after write", self.listing),
            ("multipart upload", self.multipart),
            ("create-only put", self.create_only),
            (f"create-only put, {_WRITERS} writers at once", self.races),
            ("delete, list after delete", self.delete),
        ]

    async def put(self) -> str:
        await self._put(self._prefix + "small", self._small)
        return f"{_SMALL_BYTES} bytes"

    async def get(self) -> str:
        key = self._prefix + "small"
        for start, count in ((0, None), (0, 10), (777, 5_000), (_SMALL_BYTES - 10, 100), (_SMALL_BYTES, 10)):
            wanted = self._small[start:] if count is None else self._small[start : start + count]
            if await self._store.get(key, start, count) != wanted:
                raise _Broken(f"wrong bytes from {start} of {count}")
        try:
            await self._store.get(self._prefix + "missing")
        except NoSuchObject:
            return ""
        raise _Broken("an object that was never written has bytes")

    async def size(self) -> str:
        size = await self._store.size(self._prefix + "small")
        if size != _SMALL_BYTES:
            raise _Broken(f"{size} instead of {_SMALL_BYTES}")
        return ""

    async def overwrite(self) -> str:
        key = self._prefix + "overwritten"
        for number in range(_OVERWRITES):
            content = b"version %d " % number * (number + 1)
            await self._put(key, content)
            if await self._store.get(key) != content:
                raise _Broken(f"an older version was read after put {number + 1}")
        return f"{_OVERWRITES} times"

    async def listing(self) -> str:
        keys = [f"{self._prefix}listed/{number:03}" for number in range(10)]
        for key in keys:
            await self._put(key, b"x")
        listed = [each.key for each in await self._store.list(f"{self._prefix}listed/")]
        if listed != keys:
            raise _Broken(f"{len(listed)} of {len(keys)} objects")
        return ""

    async def multipart(self) -> str:
        content = self._chance.randbytes(1 << 20) * (_LARGE_BYTES >> 20) + b"."
        await self._put(self._prefix + "large", content)
        if await self._store.size(self._prefix + "large") != len(content):
            raise _Broken("wrong size")
        if await self._store.get(self._prefix + "large") != content:
            raise _Broken("wrong bytes")
        return f"{len(content)} bytes"

    async def create_only(self) -> str:
        key = self._prefix + "created"
        await self._put(key, b"first", if_absent=True)
        try:
            await self._put(key, b"second", if_absent=True)
        except ObjectExists:
            if await self._store.get(key) == b"first":
                return ""
        raise _Broken("the second put has replaced the first")

    async def races(self) -> str:
        for number in range(_RACES):
            winners: list[bytes] = []
            key = f"{self._prefix}race/{number}"
            async with trio.open_nursery() as nursery:
                for writer in range(_WRITERS):
                    nursery.start_soon(self._race, key, b"%d" % writer, winners)
            kept = await self._store.get(key)
            if winners != [kept]:
                raise _Broken(f"{len(winners)} writers won race {number + 1} of {_RACES}")
        return f"{_RACES} races"

    async def _race(self, key: str, content: bytes, winners: list[bytes]) -> None:
        try:
            await self._put(key, content, if_absent=True)
        except ObjectExists:
            return
        winners.append(content)

    async def delete(self) -> str:
        key = self._prefix + "small"
        await self._store.delete(key)
        try:
            await self._store.get(key)
        except NoSuchObject:
            if key not in [each.key for each in await self._store.list(self._prefix)]:
                await self._store.delete(key)
                return ""
            raise _Broken("a deleted object is still listed") from None
        raise _Broken("a deleted object is still there")

    async def clean_up(self) -> str:
        for key in self._written:
            await self._store.delete(key)
        return ""

    async def _put(self, key: str, content: bytes, *, if_absent: bool = False) -> None:
        self._written[key] = None
        await self._store.put(key, [content], if_absent=if_absent)
