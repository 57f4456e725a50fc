"""Scans the records of a batch (format v2) without making any: checks that they are well formed, or searches for one.

A leader scans what every producer sends, so these are tight loops over bytes with local variables, and mypyc compiles
them with `layout` (`make compiled`). Where they run as Python, `runs.check_in_runs` is ahead of `check` if records are
alike. Both loops can stop after any record and go on there, so that a caller may scan a large batch in slices.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.records.batch import CorruptBatch
from barnabas.protocol.records.layout import read_varint, read_varlong

MOST_HEADERS: Final = 65536
"""In one record. Headers are the one part of a record that no slice divides."""
_HEADERS_AT_ONCE: Final = 8192
"""Headers after which `check` stops early."""

ONE_BYTE_REACH: Final = 64
TWO_BYTE_REACH: Final = 8192
"""Largest distance from 0 of a zigzag varint of one byte, and of two bytes."""


def check(data: bytes, position: int, first: int, count: int) -> tuple[int, int, int, int]:
    """Check up to `count` records from `position` on; their offset deltas must be `first`, `first` + 1 and so on.

    Returns (position after them, offset delta that comes next, reach, records without a key). No timestamp delta is
    further from 0 than the reach. The scan stops early behind very many headers.

    Raises `CorruptBatch` if a record is not well formed, IndexError if one reaches beyond the end of `data`.
    """
    reach = ONE_BYTE_REACH
    keyless = 0
    headers = 0
    last_section = b""
    for expected in range(first << 1, (first + count) << 1, 2):
        byte = data[position]
        if not byte & 0x81:
            position += 1
            end = position + (byte >> 1)
        else:
            second = data[position + 1]
            if second < 0x80 and not byte & 1:
                position += 2
                end = position + (second << 6) + (byte >> 1) - 0x40
            else:
                length, position = _read_length(data, position)
                end = position + length

        # The byte stepped over is the attributes of the record, of which none has a meaning.
        if data[position + 1] < 0x80:
            position += 2
        elif data[position + 2] < 0x80:
            position += 3
            reach = max(reach, TWO_BYTE_REACH)
        else:
            delta, position = read_varlong(data, position + 1)
            reach = max(reach, abs(delta))

        byte = data[position]
        if byte < 0x80:
            position += 1
        else:
            second = data[position + 1]
            if second < 0x80:
                byte += (second << 7) - 0x80
                position += 2
            else:
                delta, position = read_varint(data, position)
                byte = delta << 1 if delta >= 0 else -1
        if byte != expected:
            raise CorruptBatch(f"the offset delta of record {expected >> 1} is another number")

        byte = data[position]
        if byte == 1:
            position += 1
            keyless += 1
        elif not byte & 0x81:
            position += 1 + (byte >> 1)
        else:
            length, position = _read_length(data, position)
            position += length

        byte = data[position]
        if byte == 1:
            position += 1
        elif not byte & 0x81:
            position += 1 + (byte >> 1)
        else:
            second = data[position + 1]
            if second < 0x80 and not byte & 1:
                position += 2 + (second << 6) + (byte >> 1) - 0x40
            else:
                length, position = _read_length(data, position)
                position += length

        if data[position]:
            # Many have the headers of the one before.
            if position >= end:
                raise CorruptBatch(f"record {expected >> 1} of the batch ends before its headers")
            section = data[position:end]
            if section != last_section:
                headers += _check_headers(section)
                last_section = section
            position = end
        else:
            position += 1
        if position != end:
            raise CorruptBatch(f"record {expected >> 1} of the batch does not end where it says")
        if headers > _HEADERS_AT_ONCE:
            return position, (expected >> 1) + 1, reach, keyless
    if position > len(data):
        raise IndexError
    return position, first + count, reach, keyless


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte & 1 == 0 and byte >= 0x80:
        second = data[position + 1]
        if second < 0x80:
            return (second << 6) + (byte >> 1) - 0x40, position + 2
    length, position = read_varint(data, position)
    if length < 0:
        raise CorruptBatch(f"a length of {length} in a record")
    return length, position


def _check_headers(data: bytes) -> int:
    """The number of headers in `data`, which must contain nothing else."""
    size = len(data)
    count, position = read_varint(data, 0)
    if not 0 <= count <= size - position:
        raise CorruptBatch(f"{count} headers in {size - position} bytes of a record")
    if count > MOST_HEADERS:
        raise CorruptBatch(f"{count} headers in a record; at most {MOST_HEADERS} are allowed")
    for _ in range(count):
        byte = data[position]
        if not byte & 0x81:
            position += 1 + (byte >> 1)
        else:
            length, position = _read_length(data, position)
            position += length
        byte = data[position]
        if byte == 1:
            position += 1
        elif not byte & 0x81:
            position += 1 + (byte >> 1)
        else:
            length, position = _read_length(data, position)
            position += length
    if position != size:
        raise CorruptBatch("the headers of a record do not end where it does")
    return count


def seek(
    data: bytes, position: int, count: int, lowest: int, highest: int, keyed: bool
) -> tuple[int, int, int, int, bool]:
    """Look through up to `count` records for the first with a timestamp delta outside [`lowest`, `highest`] or, if
    records are to be `keyed`, without a key.

    Returns (records passed, with the one found; position after them; offset delta, timestamp delta and whether it has a
    key, of the one found). An offset delta of -1 means that none was found. The rest of a record is passed over unseen.

    Raises `CorruptBatch` or IndexError as `check` does.
    """
    size = len(data)
    for passed in range(1, count + 1):
        byte = data[position]
        if not byte & 0x81:
            position += 1
            end = position + (byte >> 1)
        else:
            length, position = _read_length(data, position)
            end = position + length
        if end > size:
            raise IndexError

        # The byte stepped over is the attributes.
        byte = data[position + 1]
        if byte < 0x80:
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
            position += 2
        else:
            timestamp_delta, position = read_varlong(data, position + 1)
        if keyed or timestamp_delta < lowest or timestamp_delta > highest:
            offset_delta, position = read_varint(data, position)
            has_key = data[position] & 1 == 0
            if not (keyed and has_key) or timestamp_delta < lowest or timestamp_delta > highest:
                return passed, end, offset_delta, timestamp_delta, has_key
        position = end
    return count, position, -1, 0, True
