"""Batches with a right head and a right CRC of which the records are not what readers rely on."""

from __future__ import annotations

import struct

from crc32c import crc32c

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import compress
from barnabas.protocol.records.layout import encode_varint
from barnabas.protocol.records.record import Record

NOW = 1_700_000_000_000


def batch_around(
    payload: bytes, count: int, codec: int = 0, now_ms: int = NOW, max_timestamp: int | None = None
) -> bytes:
    """Batches whose heads are right, so that a leader that checks heads alone accepts them."""
    latest = now_ms if max_timestamp is None else max_timestamp
    tail = struct.pack(">hiqqqhii", codec, count - 1, now_ms, latest, -1, -1, -1, count) + payload
    rest = struct.pack(">ibI", -1, 2, crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(rest)) + rest


def record(
    delta: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", *, time: int = 0, headers: bytes = b"\0"
) -> bytes:
    """One record as bytes; `headers` with their count."""
    body = b"\0" + encode_varint(time) + encode_varint(delta)
    for content in (key, value):
        body += b"\x01" if content is None else encode_varint(len(content)) + content
    body += headers
    return encode_varint(len(body)) + body


def poisons(now_ms: int = NOW) -> dict[str, bytes]:
    """By what is wrong with each."""

    def around(payload: bytes, count: int, codec: int = 0) -> bytes:
        return batch_around(payload, count, codec, now_ms)

    whole = record()
    return {
        "garbage": around(b"\xff" * 30, 2),
        "no zstd": around(b"this is no zstd", 1, 4),
        "no gzip": around(b"this is no gzip", 1, 1),
        "no snappy": around(b"\x05this is no snappy", 1, 2),
        "no lz4": around(b"this is no lz4", 1, 3),
        "a compressed stream cut short": around(compress(4, record(value=b"v" * 1000))[:-4], 1, 4),
        "fewer records than the head says": around(whole, 2),
        "more records than the head says": around(whole + record(1), 1),
        "bytes behind the last record": around(whole + b"\0", 1),
        "bytes behind the last record, compressed": around(compress(1, whole + b"\0"), 1, 1),
        "a record that reaches beyond the end": around(b"\x7e" + whole[1:], 1),
        "a record of negative length": around(b"\x01" + whole[1:], 1),
        "a record shorter than its fields": around(encode_varint(len(whole) - 3) + whole[1:], 1),
        "a key of negative length": around(whole[:4] + b"\x03" + whole[5:], 1),
        "a varint that does not end": around(b"\x0c\0" + b"\xff" * 12, 1),
        "an offset delta far beyond the batch": around(record(1 << 30), 1),
        "the same offset twice": around(whole + whole, 2),
        "offsets that go back, compressed": around(compress(3, record(1) + record(0)), 2, 3),
        "a negative offset delta": around(record(-1), 1),
        "a negative number of headers": around(record(headers=b"\x01"), 1),
        "more headers than there are bytes": around(record(headers=encode_varint(1 << 30)), 1),
        "a header without a key": around(record(headers=b"\x02\x01\x00"), 1),
        "bytes behind the headers": around(record(headers=b"\x02\x00\x01\x00"), 1),
    }


def bomb(records: int, now_ms: int = NOW) -> bytes:
    """Very many tiny records, whose offsets are right, in very few bytes."""
    return batch_around(
        compress(4, b"".join(record(delta, None, None) for delta in range(records))), records, 4, now_ms
    )


def zeros(size_bytes: int, codec: int, now_ms: int = NOW) -> bytes:
    """One record of so many zeros."""
    return build_batch([Record(0, now_ms, b"k", bytes(size_bytes))], compression=codec)
