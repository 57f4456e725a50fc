"""Core: message sets of magic 0 and 1 from record batches of format v2 and back, for clients before Kafka 0.11.

Kafka did both up to 3.9 and dropped it in 4.0 (KIP-896). Keys, values, timestamps and compression stay; what the older
format cannot say is lost: headers and, in magic 0, timestamps.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    CorruptBatch,
    crc_is_valid,
    iterate_batches,
)
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Compression, compress
from barnabas.protocol.records.layout import Fields
from barnabas.protocol.records.legacy import xxhash32_short
from barnabas.protocol.records.record import decode_fields

_HEAD = struct.Struct(">qiI")
"""Offset, size of what follows, CRC-32 of what follows the CRC."""
_BODY = (struct.Struct(">bb"), struct.Struct(">bbq"))
"""Magic, attributes and, in magic 1, the timestamp."""
_CRC_BYTES = 4
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)
_LZ4_DESCRIPTOR_BYTES = 6
"""Magic number, flags and block size of a frame that `compress` writes; the checksum of its head comes next."""


def down_convert(
    batch: memoryview, header: BatchHeader, magic: int, from_offset: int, limit_bytes: int
) -> tuple[bytes, int]:
    """(message set of `magic` with the records of a whole batch, their number).

    Control batches have none. Without compression the records below `from_offset` are left out. Raises KafkaError
    UNSUPPORTED_COMPRESSION_TYPE for zstd; `CorruptBatch`.
    """
    if header.magic <= magic:
        return bytes(batch), 0
    if header.magic == 2 and header.is_control:
        return b"", 0
    if header.compression == Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "clients before Kafka 2.1 cannot read zstd")
    records = decode_fields(batch, 0, limit_bytes)
    if not header.compression:
        records = [record for record in records if record[0] >= from_offset]
    if not records:
        return b"", 0
    is_stamped = header.is_log_append_time
    return build_message_set(records, magic, header.compression, log_append_time=is_stamped), len(records)


def build_message_set(
    records: Sequence[Fields], magic: int, compression: int = Compression.NONE, *, log_append_time: bool = False
) -> bytes:
    """At least one record with its own offset; with compression they are inside one wrapper message."""
    attributes = LOG_APPEND_TIME_BIT if log_append_time and magic else 0
    if not compression:
        return b"".join(
            _message(magic, attributes, offset, timestamp, key, value) for offset, timestamp, key, value, _ in records
        )
    first = records[0][0] if magic else 0
    inner = b"".join(
        _message(magic, 0, offset - first, timestamp, key, value) for offset, timestamp, key, value, _ in records
    )
    packed = compress(compression, inner)
    if magic == 0 and compression == Compression.LZ4:
        packed = _as_old_clients_read_it(packed)
    largest = max(record[1] for record in records)
    return _message(magic, attributes | compression, records[-1][0], largest, None, packed)


def _message(
    magic: int, attributes: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    body = b"".join(
        (
            _BODY[1].pack(1, attributes, timestamp) if magic else _BODY[0].pack(0, attributes),
            _NULL if key is None else _LENGTH.pack(len(key)) + key,
            _NULL if value is None else _LENGTH.pack(len(value)) + value,
        )
    )
    return _HEAD.pack(offset, _CRC_BYTES + len(body), zlib.crc32(body)) + body


def _as_old_clients_read_it(frame: bytes) -> bytes:
    """Magic 0 has the checksum of the head over the magic number, too (KAFKA-3160)."""
    checksum = xxhash32_short(frame[:_LZ4_DESCRIPTOR_BYTES]) >> 8 & 0xFF
    return frame[:_LZ4_DESCRIPTOR_BYTES] + bytes((checksum,)) + frame[_LZ4_DESCRIPTOR_BYTES + 1 :]


def up_convert(messages: memoryview, limit_bytes: int) -> tuple[bytes, int]:
    """(one batch of format v2 with all records of a produced message set, their number).

    Many messages, or one compressed wrapper. Raises KafkaError INVALID_RECORD, INVALID_TIMESTAMP, `CorruptBatch`.
    """
    found = list(iterate_batches(messages))
    if not found or found[-1][0] + found[-1][1].size_bytes != len(messages):
        raise CorruptBatch(f"a message set of {len(messages)} bytes that does not end with its last message")
    compression = found[0][1].compression
    if len(found) > 1 and any(header.compression for _, header in found):
        raise _invalid("a compressed message beside others; there must be one")
    records: list[Fields] = []
    for position, header in found:
        if header.magic > 1:
            raise _invalid(f"magic {header.magic} in a Produce request before version 3; it must be 0 or 1")
        if not crc_is_valid(messages, position, header):
            raise CorruptBatch("the CRC of a message does not match")
        if header.is_log_append_time:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "producers may not set the log append time bit")
        records += decode_fields(messages, position, limit_bytes)
    return build_batch(records, compression=compression), len(records)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
