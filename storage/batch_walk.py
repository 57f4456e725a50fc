"""Walks a segment's file from batch to batch, by as much of each header as the step needs."""

from __future__ import annotations

import struct
from collections.abc import Callable

from barnabas.protocol.records.batch import (
    OFFSET_AND_SIZE_BYTES,
    CorruptBatch,
)
from barnabas.storage.indexes import PAGE_BYTES

_HOP = struct.Struct(">qi4xb6xi")
"""Base offset, length, magic, last offset delta: the fields needed to skip a batch."""
HOP_BYTES = _HOP.size
_NO_HOP = (0, 0, 0, 0)
_MIN_BATCH_LENGTH = 14

Read = Callable[[int, int], bytes]
"""Reads up to so many bytes at a position."""
Corrupt = Callable[[int, str], CorruptBatch]
"""The error for a problem at a position."""


NO_OFFSET = -1
NEVER = 1 << 63


def skip_to(
    read: Read, corrupt: Corrupt, position: int, size_bytes: int, offset: int = NEVER, limit: int = NEVER
) -> tuple[int, int, int, int]:
    """Skip batches from a boundary on, reading a page at a time, until one reaches `offset` or ends beyond the position
    `limit`: (its position, its base offset, the offset after the batch before it, its end).

    An unknown offset is -1; at the end of the file both ends are there. Raises `CorruptBatch`.
    """
    # A generator of batches would be shorter, and twice as slow.
    chunk, chunk_start, next_offset, unpack = b"", position, NO_OFFSET, _HOP.unpack_from
    while position < size_bytes:
        at = position - chunk_start
        if at + HOP_BYTES > len(chunk):
            chunk, chunk_start, at = read(PAGE_BYTES, position), position, 0
        base_offset, length, magic, delta = unpack(chunk, at) if len(chunk) >= HOP_BYTES else _NO_HOP
        end = position + length + OFFSET_AND_SIZE_BYTES
        if magic != 2 or delta < 0 or length < _MIN_BATCH_LENGTH or end > size_bytes:
            base_offset, delta, end = _checked_hop(chunk, at, position, size_bytes, corrupt)
        if base_offset + delta >= offset or end > limit:
            return position, base_offset, next_offset, end
        position = end
        next_offset = base_offset + delta + 1
    return position, NO_OFFSET, next_offset, position


def check_boundary(read: Read, corrupt: Corrupt, position: int, size_bytes: int) -> None:
    """Raises `CorruptBatch` unless a batch header is there, or the file ends."""
    if position < size_bytes:
        _checked_hop(read(HOP_BYTES, position), 0, position, size_bytes, corrupt)


def _checked_hop(data: bytes, at: int, position: int, size_bytes: int, corrupt: Corrupt) -> tuple[int, int, int]:
    """(base offset, last offset delta, end position) of a batch of any format, or `CorruptBatch`."""
    if len(data) - at < HOP_BYTES:
        raise corrupt(position, "the file ends within a batch header")
    base_offset, length, magic, delta = _HOP.unpack_from(data, at)
    if not 0 <= magic <= 2:
        raise corrupt(position, f"no batch begins here (magic {magic})")
    if magic < 2:
        delta = 0
    end = position + length + OFFSET_AND_SIZE_BYTES
    if length < _MIN_BATCH_LENGTH or delta < 0 or end > size_bytes:
        raise corrupt(position, f"no batch begins here (length {length}, offset delta {delta})")
    return base_offset, delta, end
