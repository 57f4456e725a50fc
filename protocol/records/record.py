"""Records, and the walk over the records of one batch.

Walking costs about as much as all else a broker does to a batch, so nobody walks on the way of a produce or a
replication: consumers do, compaction does, and whoever replays a log of his own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from protocol.records.batch import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    read_header,
)
from protocol.records.varint import read_varint, read_varlong

Headers = tuple[tuple[str, bytes | None], ...]

DECODED_LIMIT_BYTES = 256 * 1024 * 1024
"""How far a batch may unfold when it is decompressed, unless the caller says otherwise."""

_INT64_RANGE = 1 << 63


class Record(NamedTuple):
    """One record (a tuple because making one is then twice as cheap)."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch; -1 if it has none."""
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    """Order and repeated keys are kept. A key that is no UTF-8 comes with lone surrogates."""


_new_record: Any = tuple.__new__


def decode_records(
    batch: bytes | bytearray | memoryview, position: int = 0, limit_bytes: int = DECODED_LIMIT_BYTES
) -> list[Record]:
    """The records of the batch at `position`, of any magic, decompressed; those of a control batch as well.

    `CorruptBatch` if they are not what the head announces, or unfold to more than `limit_bytes`. Checking the
    CRC is left to `crc_is_valid`.
    """
    header = read_header(batch, position)
    end = position + header.size_bytes
    if end > len(batch):
        raise CorruptBatch(f"the batch at offset {header.base_offset} is cut short")
    if header.magic != 2:
        from protocol.records.legacy import decode_legacy

        return decode_legacy(memoryview(batch)[position:end], header, limit_bytes)
    if header.attributes & 7:
        from protocol.records.compression import decompress

        payload = decompress(header.attributes & 7, memoryview(batch)[position + BATCH_HEADER_BYTES : end], limit_bytes)
    else:
        payload = bytes(memoryview(batch)[position + BATCH_HEADER_BYTES : end])
    try:
        return _decode_payload(payload, header)
    except IndexError:
        raise CorruptBatch(f"the records of the batch at offset {header.base_offset} end too soon") from None


def _decode_payload(data: bytes, header: BatchHeader) -> list[Record]:
    """Lay out every record of `data`. IndexError where a record reaches for bytes beyond the end.

    Numbers of one or two bytes are read in line. A key, value or header that claims too many bytes comes out
    short, and is found out when the record does not end where it said it would.
    """
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    count = header.records_count
    if count < 0:
        raise CorruptBatch(f"a record count of {count} at offset {base_offset}")
    new_record, record_type = _new_record, Record
    records: list[Record] = []
    append = records.append
    wide_timestamps = not -(1 << 62) < base_timestamp < 1 << 62
    position = 0
    for _ in range(count):
        byte = data[position]
        if byte & 1:
            raise CorruptBatch(f"a record of negative length in the batch at offset {base_offset}")
        if byte < 0x80:
            end = position + 1 + (byte >> 1)
            position += 2
        elif (second := data[position + 1]) < 0x80:
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
        elif (second := data[position + 1]) < 0x80:
            byte += (second << 7) - 0x80
            timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
            position += 2
        else:
            delta, position = read_varlong(data, position)
            timestamp = base_timestamp + delta
            wide_timestamps = wide_timestamps or not -(1 << 62) < delta < 1 << 62

        byte = data[position]
        if byte < 0x80:
            offset = base_offset + ((byte >> 1) ^ -(byte & 1))
            position += 1
        elif (second := data[position + 1]) < 0x80:
            byte += (second << 7) - 0x80
            offset = base_offset + ((byte >> 1) ^ -(byte & 1))
            position += 2
        else:
            delta, position = read_varint(data, position)
            offset = base_offset + delta

        key: bytes | None
        byte = data[position]
        if byte == 1:
            key = None
            position += 1
        else:
            if byte < 0x80 and not byte & 1:
                length = byte >> 1
                position += 1
            else:
                length, position = _read_length(data, position)
            key = data[position : position + length]
            position += length

        value: bytes | None
        byte = data[position]
        if byte == 1:
            value = None
            position += 1
        else:
            if byte < 0x80 and not byte & 1:
                length = byte >> 1
                position += 1
            elif not byte & 1 and (second := data[position + 1]) < 0x80:
                length = (second << 6) + (byte >> 1) - 0x40
                position += 2
            else:
                length, position = _read_length(data, position)
            value = data[position : position + length]
            position += length

        headers: Headers = ()
        if data[position]:
            headers, position = _decode_headers(data, position)
        else:
            position += 1
        if position != end:
            raise CorruptBatch(f"the record at offset {offset} does not end where it says")
        if append_time is not None:
            timestamp = append_time
        append(new_record(record_type, (offset, timestamp, key, value, headers)))
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes after the records at offset {base_offset}")
    if wide_timestamps and any(not -_INT64_RANGE <= record.timestamp < _INT64_RANGE for record in records):
        raise CorruptBatch(f"a timestamp wider than 64 bits at offset {base_offset}")
    return records


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    length, position = read_varint(data, position)
    if length < 0:
        raise CorruptBatch(f"a length of {length} in a record")
    return length, position


def _decode_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _read_length(data, position)
    if count > len(data) - position:
        raise CorruptBatch(f"{count} headers in {len(data) - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = _read_length(data, position)
        key = data[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length, position = read_varint(data, position)
        if length == -1:
            headers.append((key, None))
            continue
        if length < 0:
            raise CorruptBatch(f"a length of {length} in a record header")
        headers.append((key, data[position : position + length]))
        position += length
    return tuple(headers), position
