"""Records, and the way to them through one batch: its head, what compresses it, the walk.

Walking costs about as much as everything else that a broker does with a batch, so followers do not walk, and a leader
scans produced batches without making records of them (`record_check`). Consumers, compaction and replay of a log walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

from barnabas.protocol.records import layout
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, CorruptBatch, read_header
from barnabas.protocol.records.layout import Fields, Headers
from barnabas.protocol.records.runs import walk_in_runs

__all__ = [
    "CLIENT_LIMIT_BYTES",
    "COMPILED",
    "DECODED_LIMIT_BYTES",
    "SERVED_LIMIT_BYTES",
    "SERVED_LIMIT_RECORDS",
    "Fields",
    "Headers",
    "Record",
    "decode_fields",
    "decode_in_slices",
    "decode_records",
    "payload_of",
]

DECODED_LIMIT_BYTES = 256 * 1024 * 1024
"""Default limit of the decompressed bytes of a batch."""

SERVED_LIMIT_BYTES = 16 * 1024 * 1024
"""Limit of the decompressed bytes of a batch that a client produces, unless `max.message.bytes` is larger. Clients have
to split larger batches."""

SERVED_LIMIT_RECORDS = 1 << 20
"""Limit of the records of such a batch."""

CLIENT_LIMIT_BYTES = 64 * 1024 * 1024
"""Default limit of the decompressed bytes of a batch that a client reads, unless the batch itself is larger. Kafka
accepts batches of any size, so it is higher than in a broker."""

COMPILED = not layout.__file__.endswith(".py")
"""True if the module that walks and lays out records is compiled by mypyc."""

_walk = layout.walk if COMPILED else walk_in_runs


class Record(NamedTuple):
    """One record (a tuple because making one is then twice as cheap)."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch; -1 if it has none."""
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    """Order and repeated keys are kept. A key that is no UTF-8 comes with lone surrogates."""


_new_record: Any = tuple.__new__  # skips the Python-level constructor of the named tuple


def decode_records(
    batch: bytes | bytearray | memoryview, position: int = 0, limit_bytes: int = DECODED_LIMIT_BYTES
) -> list[Record]:
    """The records of the batch at `position`, of any magic, decompressed; those of a control batch as well.

    `CorruptBatch` if they are not what the head announces, or unfold to more than `limit_bytes`. Checking the
    CRC is left to `crc_is_valid`.
    """
    return list(map(_new_record, repeat(Record), decode_fields(batch, position, limit_bytes)))


def decode_in_slices(
    batch: memoryview, limit_bytes: int, most_records: int, slice_records: int = 1000
) -> Iterator[list[Record]]:
    """The records of the batch at the start of `batch`, as lists of `slice_records`: for callers that keep few.

    `CorruptBatch` also if there are more than `most_records`.
    """
    header = read_header(batch)
    count, base_offset = header.records_count, header.base_offset
    if count > most_records:
        raise CorruptBatch(f"{count} records in the batch at offset {base_offset}; at most {most_records} are read")
    if header.magic != 2 or header.records_count <= slice_records:
        yield decode_records(batch, 0, limit_bytes)
        return
    data = payload_of(batch, header, 0, limit_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    position, left = 0, header.records_count
    while left:
        count = min(left, slice_records)
        try:
            fields, position = layout.walk(data, position, count, header.base_offset, header.base_timestamp)
        except IndexError:
            raise _ends_too_soon(header) from None
        left -= count
        if append_time is not None:
            fields = [(offset, append_time, key, value, headers) for offset, _, key, value, headers in fields]
        yield list(map(_new_record, repeat(Record), fields))
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes after the records at offset {header.base_offset}")


def _ends_too_soon(header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(f"the records of the batch at offset {header.base_offset} end too soon")


def decode_fields(
    batch: bytes | bytearray | memoryview, position: int = 0, limit_bytes: int = DECODED_LIMIT_BYTES
) -> list[Fields]:
    """`decode_records` with plain tuples, for callers that make records of their own type."""
    header = read_header(batch, position)
    base_offset = header.base_offset
    end = position + header.size_bytes
    if end > len(batch):
        raise CorruptBatch(f"the batch at offset {base_offset} is cut short")
    view = memoryview(batch)
    if header.magic != 2:
        from barnabas.protocol.records.legacy import decode_legacy

        return decode_legacy(view[position:end], header, limit_bytes)
    payload = payload_of(view, header, position, limit_bytes)
    count = header.records_count
    if count < 0:
        raise CorruptBatch(f"a record count of {count} at offset {base_offset}")
    try:
        records, position = _walk(payload, 0, count, base_offset, header.base_timestamp)
    except IndexError:
        raise _ends_too_soon(header) from None
    if position != len(payload):
        raise CorruptBatch(f"{len(payload) - position} bytes after the records at offset {base_offset}")
    if header.is_log_append_time:
        timestamp = header.max_timestamp
        return [(offset, timestamp, key, value, headers) for offset, _, key, value, headers in records]
    return records


def payload_of(view: memoryview, header: BatchHeader, position: int, limit_bytes: int) -> bytes:
    """The decompressed bytes behind the head of the batch (format v2) at `position`, which must be complete.

    `CorruptBatch` as `decompress` raises it.
    """
    content = view[position + BATCH_HEADER_BYTES : position + header.size_bytes]
    if header.attributes & 7:
        from barnabas.protocol.records.compression import decompress

        try:
            return decompress(header.attributes & 7, content, limit_bytes)
        except CorruptBatch as error:
            raise type(error)(f"the batch at offset {header.base_offset}: {error.message}") from None
    return bytes(content)
