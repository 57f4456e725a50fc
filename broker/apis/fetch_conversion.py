"""Down-conversion of what a fetch read, for consumers before Kafka 0.11, in steps with bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from barnabas.broker.traffic import Conversions
from barnabas.protocol.records.batch import BatchHeader, iterate_batches
from barnabas.protocol.records.conversion import down_convert
from barnabas.protocol.records.record import CLIENT_LIMIT_BYTES
from barnabas.runtime.world import FileRegion

MAGIC_OF_VERSION = (0, 0, 1, 1)
"""Newest format that consumers read, by the version of their Fetch; from version 4 on they read all."""
PARTITION_BYTES = 1 << 20
RESPONSE_BYTES = 4 << 20
"""Most bytes that are read for a partition and for a response, unless the first batch is larger."""
SKIPPED_AT_MOST = 8
"""Times that a partition is read again because there were only control batches, which such consumers never see."""
_AT_ONCE_BYTES = 64 << 10
"""Batches up to this size together are converted in one task of the worker, a larger batch alone."""

Batches = list[tuple[int, BatchHeader]]


def down_converted(
    read: FileRegion | bytes, magic: int, from_offset: int, conversions: Conversions
) -> Generator[Callable[[], Any] | None, Any, tuple[bytes, int]]:
    """(message set with the records of whole batches from `from_offset` on, the offset after them).

    Raises KafkaError, OSError if not even the first batch can be converted.
    """
    content: bytes = (yield partial(read.file.pread, read.count, read.offset)) if isinstance(read, FileRegion) else read
    data = memoryview(content)
    converted: list[bytes] = []
    next_offset = from_offset
    for batches in _portions(data):
        began = conversions.stopwatch()
        pieces, records = yield partial(_convert, data, batches, magic, from_offset)
        conversions.spread.took(conversions.stopwatch() - began)
        conversions.records += records
        converted += pieces
        next_offset = batches[-1][1].next_offset
    return b"".join(converted), next_offset


def _portions(data: memoryview) -> Generator[Batches, None, None]:
    portion: Batches = []
    size = 0
    for position, header in iterate_batches(data):
        if portion and size + header.size_bytes > _AT_ONCE_BYTES:
            yield portion
            portion, size = [], 0
        portion.append((position, header))
        size += header.size_bytes
    if portion:
        yield portion


def _convert(data: memoryview, batches: Batches, magic: int, from_offset: int) -> tuple[list[bytes], int]:
    pieces, records = [], 0
    for position, header in batches:
        batch = data[position : position + header.size_bytes]
        piece, count = down_convert(batch, header, magic, from_offset, max(CLIENT_LIMIT_BYTES, header.size_bytes))
        pieces.append(piece)
        records += count
    return pieces, records
