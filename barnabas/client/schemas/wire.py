"""Core: Confluent's wire format: a zero byte, the id of the schema in four bytes, then the data.

With Protobuf there is the place of the message in its file between them: indexes of messages from the outermost to the
innermost, as zigzag numbers behind their count; the first message of a file is a single zero byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from barnabas.client.errors import SerializationException

MAGIC = 0
_HEADER = struct.Struct(">bI")
HEADER_BYTES = _HEADER.size
MOST_INDEXES = 64


def with_header(schema_id: int, data: bytes) -> bytes:
    return _HEADER.pack(MAGIC, schema_id) + data


def schema_id_of(topic: str, data: bytes) -> int:
    """Raises SerializationException for bytes without a header."""
    if len(data) < HEADER_BYTES:
        raise SerializationException(f"topic {topic}: expected at least {HEADER_BYTES} bytes; got {len(data)}")
    magic, schema_id = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise SerializationException(f"topic {topic}: expected 0 and the id of a schema at the begin; got {data[:5]!r}")
    return int(schema_id)


def write_indexes(indexes: Sequence[int]) -> bytes:
    """The place of a message in its file."""
    if list(indexes) == [0]:
        return b"\x00"
    return b"".join(_zigzag(each) for each in [len(indexes), *indexes])


def read_indexes(topic: str, data: bytes, at: int) -> tuple[list[int], int]:
    """The place of a message, and where its data begins. Raises SerializationException."""
    count, at = _read_zigzag(topic, data, at)
    if count == 0:
        return [0], at
    if not 0 < count <= MOST_INDEXES:
        raise SerializationException(f"topic {topic}: a message at a depth of {count}")
    indexes = []
    for _ in range(count):
        index, at = _read_zigzag(topic, data, at)
        indexes.append(index)
    return indexes, at


def _zigzag(number: int) -> bytes:
    rest, written = number << 1, bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def _read_zigzag(topic: str, data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        number |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise SerializationException(f"topic {topic}: the place of the message is cut off")
