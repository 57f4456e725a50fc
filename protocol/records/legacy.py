"""Reads message sets of magic 0 and 1, the formats before Kafka 0.11, which are no longer written.

A message stands alone, or its value is a compressed message set and it is the wrapper of that. Wrappers do
not nest, in Kafka neither.
"""

from __future__ import annotations

import struct
import zlib

from barnabas.protocol.records.batch import (
    LEGACY_HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    iterate_batches,
)
from barnabas.protocol.records.compression import Compression, decompress
from barnabas.protocol.records.layout import Fields

_LENGTH = struct.Struct(">i")
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_MASK32 = 0xFFFF_FFFF


def decode_legacy(message: memoryview, header: BatchHeader, limit_bytes: int) -> list[Fields]:
    """The records of one message or wrapper; offsets and timestamps as a consumer shall see them.

    `CorruptBatch` as in `record.decode_records`; the CRC of messages inside a wrapper is checked here
    alone.
    """
    key, value = _key_and_value(message, header)
    if not header.compression:
        return [(header.base_offset, header.base_timestamp, key, value, ())]
    if value is None:
        raise CorruptBatch(f"the wrapper at offset {header.base_offset} holds nothing")
    if header.compression == Compression.ZSTD:
        raise CorruptBatch(f"zstd in magic {header.magic} at offset {header.base_offset}")
    if header.compression == Compression.LZ4:
        value = mend_lz4_header(value)
    inner = _inner_records(decompress(header.compression, value, limit_bytes), header)
    if header.magic == 0:
        return inner  # inner offsets are absolute
    # Inner offsets count from 0 (with holes after compaction), and the wrapper bears the offset of the last.
    # Some writers put 0 on the wrapper when its offset was yet to be assigned.
    base_offset = header.base_offset - inner[-1][0] if header.base_offset else 0
    if base_offset < 0:
        raise CorruptBatch(f"the wrapper's offset {header.base_offset} is less than one inside it")
    append_time = header.max_timestamp if header.is_log_append_time else None
    return [
        (base_offset + offset, timestamp if append_time is None else append_time, key, value, headers)
        for offset, timestamp, key, value, headers in inner
    ]


def _inner_records(payload: bytes, wrapper: BatchHeader) -> list[Fields]:
    view = memoryview(payload)
    records: list[Fields] = []
    end = 0
    for position, header in iterate_batches(view):
        end = position + header.size_bytes
        if header.magic > 1 or header.compression:
            raise CorruptBatch(f"a message of another kind inside the wrapper at offset {wrapper.base_offset}")
        if zlib.crc32(view[position + 16 : end]) != header.crc:
            raise CorruptBatch(f"a broken message inside the wrapper at offset {wrapper.base_offset}")
        key, value = _key_and_value(view[position:end], header)
        records.append((header.base_offset, header.base_timestamp, key, value, ()))
    if not records or end != len(view):
        raise CorruptBatch(f"the wrapper at offset {wrapper.base_offset} is empty or cut short inside")
    return records


def _key_and_value(message: memoryview, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    position = LEGACY_HEADER_BYTES + 8 * header.magic
    key, position = _nullable_bytes(message, position)
    value, position = _nullable_bytes(message, position)
    if position != len(message):
        raise CorruptBatch(f"bytes after the message at offset {header.base_offset}")
    return key, value


def _nullable_bytes(message: memoryview, position: int) -> tuple[bytes | None, int]:
    try:
        (length,) = _LENGTH.unpack_from(message, position)
    except struct.error:
        raise CorruptBatch("a message ends before its key or value") from None
    position += 4
    if length == -1:
        return None, position
    if length < 0 or position + length > len(message):
        raise CorruptBatch(f"a key or value of {length} bytes in a message of {len(message)}")
    return bytes(message[position : position + length]), position + length


def mend_lz4_header(frame: bytes) -> bytes:
    """The LZ4 frame with the checksum that its head ought to have.

    The first Kafka clients hashed the magic number too, some others wrote other values still (KIP-57), so for
    these old messages the byte is meaningless, but decompressors check it.
    """
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        return frame
    flags = frame[4]
    checksum_position = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(frame) <= checksum_position:
        return frame
    checksum = xxhash32_short(frame[4:checksum_position]) >> 8 & 0xFF
    return frame[:checksum_position] + bytes((checksum,)) + frame[checksum_position + 1 :]


def xxhash32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes."""
    assert len(data) < 16
    total = (374761393 + len(data)) & _MASK32
    position = 0
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        total = (total + word * 3266489917) & _MASK32
        total = (total << 17 | total >> 15) * 668265263 & _MASK32
        position += 4
    for byte in data[position:]:
        total = (total + byte * 374761393) & _MASK32
        total = (total << 11 | total >> 21) * 2654435761 & _MASK32
    total = (total ^ total >> 15) * 2246822519 & _MASK32
    total = (total ^ total >> 13) * 3266489917 & _MASK32
    return total ^ total >> 16
