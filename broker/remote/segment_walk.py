"""Shell: walks the batches of a remote segment by their headers, with few requests to the store."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.remote.index_cache import SegmentReads
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, CorruptBatch, read_header
from barnabas.storage.remote.segment import RemoteSegment

HEADERS_BYTES = 16 << 10
"""Bytes that are read to look at headers: more than lie between two entries of an index, usually."""


class Found(NamedTuple):
    """A batch: its position in the segment, its header, and bytes that were read from there on."""

    position: int
    header: BatchHeader
    data: memoryview


class SegmentWalk:
    """One walk forward, from a position at which a batch begins."""

    def __init__(
        self, store: SegmentReads, segment: RemoteSegment, position: int, request_bytes: int = HEADERS_BYTES
    ) -> None:
        """`request_bytes` are read whenever the bytes at hand have no further header."""
        self._request_bytes = request_bytes
        self._store = store
        self._segment = segment
        self._position = position
        self._chunk = memoryview(b"")
        self._chunk_at = position

    async def read_ahead(self, count: int) -> None:
        """Read `count` bytes from the present position at once, as far as the segment goes. Raises StoreError."""
        left = self._segment.size_bytes - self._position
        self._chunk = memoryview(await self._store.read(self._segment, self._position, min(count, left)))
        self._chunk_at = self._position

    async def next(self) -> Found | None:
        """The next batch; None at the end of the segment. Raises StoreError, CorruptBatch."""
        position, segment = self._position, self._segment
        if position >= segment.size_bytes:
            return None
        if position + BATCH_HEADER_BYTES > self._chunk_at + len(self._chunk):
            await self.read_ahead(self._request_bytes)
        data = self._chunk[position - self._chunk_at :]
        try:
            header = read_header(data)
        except CorruptBatch as error:
            raise CorruptBatch(f"{segment}: byte {position}: {error.message}") from None
        if not segment.start_offset <= header.base_offset <= header.last_offset <= segment.end_offset:
            offsets = f"offsets {header.base_offset} to {header.last_offset}"
            raise CorruptBatch(f"{segment}: the batch at byte {position} has {offsets}")
        if position + header.size_bytes > segment.size_bytes:
            raise CorruptBatch(f"{segment}: the batch at byte {position} ends behind byte {segment.size_bytes}")
        self._position += header.size_bytes
        return Found(position, header, data)

    async def whole(self, found: Found) -> bytes:
        """All bytes of a batch. Raises StoreError, CorruptBatch."""
        size = found.header.size_bytes
        if len(found.data) >= size:
            return bytes(found.data[:size])
        data = await self._store.read(self._segment, found.position, size)
        if len(data) < size:
            raise CorruptBatch(f"{self._segment}: the batch at byte {found.position} has {len(data)} bytes, not {size}")
        return data
