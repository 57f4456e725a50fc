"""Shell: indexes of remote segments in memory, bounded in bytes; those that nobody has used for the longest time go
first."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import trio

from barnabas.broker.remote.segment_store import IndexKind
from barnabas.runtime.object_store import NoSuchObject
from barnabas.runtime.world import Clock
from barnabas.storage.remote.segment import RemoteSegment


class SegmentReads(Protocol):
    """The part of `broker.remote.segment_store.RemoteSegmentStore` that readers use. Raises StoreError."""

    async def read(self, segment: RemoteSegment, start: int, count: int) -> bytes: ...

    async def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Raises NoSuchObject if there is none."""


_Key = tuple[bytes, IndexKind]


class _Cached(NamedTuple):
    data: bytes
    used_ms: int


class IndexCache:
    """Indexes by segment and kind. An index that several readers need at once is read once."""

    def __init__(self, store: SegmentReads, clock: Clock, limit_bytes: Callable[[], int], ttl_ms: int) -> None:
        """An index that was not used for `ttl_ms` is dropped."""
        self._store = store
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._cached: dict[_Key, _Cached] = {}
        """Least recently used first."""
        self._loading: dict[_Key, trio.Event] = {}
        self.size_bytes = 0

    async def get(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """The bytes of an index; none for a transaction index that does not exist. Raises StoreError."""
        key = (segment.segment_id, kind)
        while True:
            now_ms = self._clock.now_ms()
            cached = self._cached.pop(key, None)
            if cached is not None:
                self._cached[key] = cached._replace(used_ms=now_ms)
                return cached.data
            loading = self._loading.get(key)
            if loading is None:
                return await self._load(segment, key)
            await loading.wait()

    async def _load(self, segment: RemoteSegment, key: _Key) -> bytes:
        loaded = self._loading[key] = trio.Event()
        try:
            data = await self._read(segment, key[1])
        finally:
            del self._loading[key]
            loaded.set()
        self._add(key, data)
        return data

    async def _read(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        if kind is not IndexKind.TRANSACTION:
            return await self._store.read_index(segment, kind)
        if segment.transaction_index_is_empty:
            return b""
        try:
            return await self._store.read_index(segment, kind)
        except NoSuchObject:
            return b""

    def _add(self, key: _Key, data: bytes) -> None:
        now_ms, limit_bytes = self._clock.now_ms(), self._limit_bytes()
        if len(data) > limit_bytes:
            return
        self._cached[key] = _Cached(data, now_ms)
        self.size_bytes += len(data)
        for oldest in list(self._cached):
            if self.size_bytes <= limit_bytes and self._cached[oldest].used_ms > now_ms - self._ttl_ms:
                break
            self.size_bytes -= len(self._cached.pop(oldest).data)
