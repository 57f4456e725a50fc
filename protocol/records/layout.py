"""The layout of records behind the head of a batch (format v2, KIP-98): walks them, and lays them out.

Every record that a client sends or reads goes through these loops, and nothing else here costs so much. So they are in
one module that knows bytes and tuples alone, and that mypyc compiles if it is asked to (`make compiled`). It runs as
well as it stands; `runs` is then ahead of it where records are alike.

Numbers are zigzag varints: 1 to 5 bytes for an int32, 1 to 10 for an int64; small ones of either sign take few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.protocol.records.batch import CorruptBatch

Headers = tuple[tuple[str, bytes | None], ...]
Fields = tuple[int, int, bytes | None, bytes | None, Headers]
"""Offset, timestamp, key, value, headers: what `Record` is as well."""

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10

_MAX_INT32: Final = 0x7FFF_FFFF
_INT64_RANGE: Final = 1 << 63
_WIDE: Final = 1 << 62
"""Timestamps nearer than this to the ends of an int64 are looked at twice."""


def walk(data: bytes, position: int, count: int, base_offset: int, base_timestamp: int) -> tuple[list[Fields], int]:
    """(`count` records of `data` from `position` on, position after them).

    `CorruptBatch` if their lengths do not match, IndexError if a record reaches beyond the end. A key, a value or a
    header with too large a length comes out short; that is found because the record then does not end at its own
    length. Numbers of one or two bytes are read in line.
    """
    records: list[Fields] = []
    wide = not -_WIDE < base_timestamp < _WIDE
    last_section = b""
    last_headers: Headers = ()
    for _ in range(count):
        byte = data[position]
        if byte & 1:
            raise CorruptBatch(f"a record of negative length in the batch at offset {base_offset}")
        if byte < 0x80:
            end = position + 1 + (byte >> 1)
            position += 2
        else:
            second = data[position + 1]
            if second < 0x80:
                end = position + 2 + (second << 6) + (byte >> 1) - 0x40
                position += 3
            else:
                length, position = read_varint(data, position)
                end = position + length
                position += 1
        # The byte stepped over is the attributes of the record, of which none has a meaning.

        byte = data[position]
        if byte < 0x80:
            timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
            position += 1
        else:
            second = data[position + 1]
            if second < 0x80:
                byte += (second << 7) - 0x80
                timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
                position += 2
            else:
                delta, position = read_varlong(data, position)
                timestamp = base_timestamp + delta
                wide = wide or not -_WIDE < delta < _WIDE

        byte = data[position]
        if byte < 0x80:
            offset = base_offset + ((byte >> 1) ^ -(byte & 1))
            position += 1
        else:
            second = data[position + 1]
            if second < 0x80:
                byte += (second << 7) - 0x80
                offset = base_offset + ((byte >> 1) ^ -(byte & 1))
                position += 2
            else:
                delta, position = read_varint(data, position)
                offset = base_offset + delta

        key: bytes | None = None
        byte = data[position]
        if byte == 1:
            position += 1
        else:
            if byte < 0x80 and not byte & 1:
                length = byte >> 1
                position += 1
            else:
                length, position = _read_length(data, position)
            key = data[position : position + length]
            position += length

        value: bytes | None = None
        byte = data[position]
        if byte == 1:
            position += 1
        else:
            if byte < 0x80 and not byte & 1:
                length = byte >> 1
                position += 1
            else:
                length, position = _read_length(data, position)
            value = data[position : position + length]
            position += length

        headers: Headers = ()
        if data[position]:
            if position >= end:
                raise CorruptBatch(f"the record at offset {offset} ends before its headers")
            # Many have the headers of the one before.
            section = data[position:end]
            if section != last_section:
                last_headers = _walk_headers(section)
                last_section = section
            headers = last_headers
            position += len(section)
        else:
            position += 1
        if position != end:
            raise CorruptBatch(f"the record at offset {offset} does not end where it says")
        records.append((offset, timestamp, key, value, headers))
    if wide:
        _check_timestamps(records, base_offset)
    return records, position


def _check_timestamps(records: list[Fields], base_offset: int) -> None:
    for record in records:
        if not -_INT64_RANGE <= record[1] < _INT64_RANGE:
            raise CorruptBatch(f"a timestamp wider than 64 bits at offset {base_offset}")


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if not byte & 1:
        second = data[position + 1]
        if byte >= 0x80 and second < 0x80:
            return (second << 6) + (byte >> 1) - 0x40, position + 2
    length, position = read_varint(data, position)
    if length < 0:
        raise CorruptBatch(f"a length of {length} in a record")
    return length, position


def _walk_headers(data: bytes) -> Headers:
    """`CorruptBatch` if `data` is anything but headers, IndexError if it ends within them."""
    count, position = read_varint(data, 0)
    if count < 0 or count > len(data) - position:
        raise CorruptBatch(f"{count} headers in {len(data) - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        byte = data[position]
        if byte < 0x80 and not byte & 1:
            length = byte >> 1
            position += 1
        else:
            length, position = _read_length(data, position)
        key = data[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        byte = data[position]
        if byte == 1:
            headers.append((key, None))
            position += 1
            continue
        if byte < 0x80 and not byte & 1:
            length = byte >> 1
            position += 1
        else:
            length, position = _read_length(data, position)
        headers.append((key, data[position : position + length]))
        position += length
    if position != len(data):
        raise CorruptBatch("the headers of a record do not end where it does")
    return tuple(headers)


def lay_out(
    records: Sequence[Fields], base_timestamp: int, first_offset: int | None, append_time: int | None
) -> tuple[bytes, int]:
    """(the records one after another, the offset delta of the last one or -1).

    With `first_offset` the deltas are those of the records' own offsets, else they count up from 0. With `append_time`
    that is everybody's timestamp. ValueError if offsets do not grow, or are too far apart for one batch.

    The bytes before and between the contents are made again only if they differ from those of the record before.
    """
    small, limit = _SMALL, _SMALL_LIMIT
    parts: list[bytes] = []
    offset_delta = -1
    last_timestamp = base_timestamp
    last_key_length = -2
    last_value_length = -2
    last_headers: Headers = ()
    time = base_timestamp if append_time is None else append_time
    time_part = b"\x00" + encode_varint(time - base_timestamp)
    key_part = value_part = b""
    headers_part = b"\x00"
    lead = b""
    width = 0
    """Width of the offset delta in `lead`, which has the length of the record; 0: `lead` has to be made again."""
    for offset, timestamp, key, value, headers in records:
        if first_offset is None:
            offset_delta += 1
        else:
            previous = offset_delta
            offset_delta = offset - first_offset
            if not previous < offset_delta <= _MAX_INT32:
                raise ValueError(f"offset {offset} cannot follow in a batch from {first_offset}")
        if timestamp != last_timestamp:
            last_timestamp = timestamp
            if append_time is None:
                time_part = b"\x00" + encode_varint(timestamp - base_timestamp)
            width = 0
        if key is None:
            key = b""
            key_length = -1
        else:
            key_length = len(key)
        if key_length != last_key_length:
            last_key_length = key_length
            key_part = small[key_length] if 0 <= key_length < limit else encode_varint(key_length)
            width = 0
        if value is None:
            value = b""
            value_length = -1
        else:
            value_length = len(value)
        if value_length != last_value_length:
            last_value_length = value_length
            value_part = small[value_length] if 0 <= value_length < limit else encode_varint(value_length)
            width = 0
        if headers is not last_headers:
            last_headers = headers
            headers_part = _lay_out_headers(headers) if headers else b"\x00"
            width = 0
        offset_part = small[offset_delta] if offset_delta < limit else encode_varint(offset_delta)
        if len(offset_part) != width:
            width = len(offset_part)
            length = len(time_part) + width + len(key_part) + len(key)
            length += len(value_part) + len(value) + len(headers_part)
            lead = (small[length] if length < limit else encode_varint(length)) + time_part
        parts += (lead, offset_part, key_part, key, value_part, value, headers_part)
    return b"".join(parts), offset_delta


def _lay_out_headers(headers: Headers) -> bytes:
    parts: list[bytes] = [encode_varint(len(headers))]
    for key, value in headers:
        name = key.encode("utf-8", "surrogateescape")
        if value is None:
            parts.extend((encode_varint(len(name)), name, b"\x01"))
        else:
            parts.extend((encode_varint(len(name)), name, encode_varint(len(value)), value))
    return b"".join(parts)


def record_bytes(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> int:
    """Exactly what a record adds to a batch before compression. UnicodeEncodeError: a header that cannot be written."""
    sizes, limit = _SIZES, _SIZE_LIMIT
    size = 3
    if timestamp_delta or offset_delta >= 64:
        size = 1
        size += sizes[timestamp_delta] if 0 <= timestamp_delta < limit else varint_size(timestamp_delta)
        size += sizes[offset_delta] if offset_delta < limit else varint_size(offset_delta)
    if key is None:
        size += 1
    else:
        length = len(key)
        size += length + (sizes[length] if length < limit else varint_size(length))
    if value is None:
        size += 1
    else:
        length = len(value)
        size += length + (sizes[length] if length < limit else varint_size(length))
    size += _headers_bytes(headers) if headers else 1
    return size + (sizes[size] if size < limit else varint_size(size))


def _headers_bytes(headers: Headers) -> int:
    size = varint_size(len(headers))
    for name, content in headers:
        length = len(name.encode("utf-8", "surrogateescape"))
        size += varint_size(length) + length
        size += 1 if content is None else varint_size(len(content)) + len(content)
    return size


def record_size_bytes(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """An upper bound of what a record adds to a batch that is not compressed.

    UnicodeEncodeError if a header's key cannot be written.
    """
    key_bytes = 0 if key is None else len(key)
    value_bytes = 0 if value is None else len(value)
    if key_bytes < 64 and value_bytes < 8192 and not headers:
        return 25 + key_bytes + value_bytes
    size = 21 + key_bytes + value_bytes
    size += varint_size(key_bytes) + varint_size(value_bytes) + varint_size(len(headers))
    for name, content in headers:
        size += 10 + len(name.encode("utf-8", "surrogateescape")) + len(content or b"")
    return size


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it). `CorruptBatch` if wider than 32 bits, IndexError if `data` ends within."""
    return _read(data, position, MAX_VARINT_BYTES, 32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it). `CorruptBatch` if wider than 64 bits, IndexError if `data` ends within."""
    return _read(data, position, MAX_VARLONG_BYTES, 64)


def _read(data: bytes, position: int, max_bytes: int, width: int) -> tuple[int, int]:
    raw = 0
    for index in range(max_bytes):
        byte = data[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if raw >> width:
                break
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise CorruptBatch(f"a varint wider than {width} bits")


def encode_varint(value: int) -> bytes:
    """Any integer of at most 64 bits, signed."""
    if 0 <= value < _SMALL_LIMIT:
        return _SMALL[value]
    return _encode(value)


def _encode(value: int) -> bytes:
    raw = value << 1 if value >= 0 else ~(value << 1)
    if raw < 0x80:
        return bytes((raw,))
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def varint_size(value: int) -> int:
    """Bytes that `encode_varint` gives."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    return max(1, (raw.bit_length() + 6) // 7)


_SIZE_LIMIT: Final = 8192
_SIZES: Final[bytes] = b"\x01" * 64 + b"\x02" * (_SIZE_LIMIT - 64)
"""Bytes of the varints that lengths and deltas mostly are."""
_SMALL_LIMIT: Final = 2048
_SMALL: Final[tuple[bytes, ...]] = tuple([_encode(value) for value in range(_SMALL_LIMIT)])
"""The varints of lengths, counts and deltas as they mostly are."""
