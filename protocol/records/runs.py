"""Walks or checks the records of a batch in runs of records that are alike: fast where `layout` is not compiled.

Records of machines often have keys and values of the same size, and then all of a run lie at one distance. Their common
bytes are compared for the whole run at once, as columns: one slice each, with that distance as its step. The other
bytes are cut out at once, too. All other records are left to `layout.walk`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from struct import iter_unpack
from typing import NamedTuple

from barnabas.protocol.records.layout import Fields, Headers, walk
from barnabas.protocol.records.scan import ONE_BYTE_REACH, TWO_BYTE_REACH, check

_MIN_RUN = 6
"""With fewer records the columns cost more than they save."""
_CHANCES = 2
"""After so many runs that were too short no more are looked for in a batch."""
_STEP = 24
"""Records that are walked one by one after a run that was too short."""

_ONE_BYTE_DELTAS = 64
_TWO_BYTE_DELTAS = 8192
_NO_HEADERS: Headers = ()

_LAST = bytes(range(0x80))
"""The bytes a varint may end with."""
_MORE = bytes(range(0x80, 0x100))
"""The bytes after which it goes on."""
_ZIGZAG = tuple((raw >> 1) ^ -(raw & 1) for raw in range(0x80))
_OFFSETS = bytes(delta << 1 for delta in range(_ONE_BYTE_DELTAS))
_LOW_OFFSETS = bytes(delta << 1 & 0x7F | 0x80 for delta in range(_TWO_BYTE_DELTAS))
_HIGH_OFFSETS = bytes(delta >> 6 for delta in range(_TWO_BYTE_DELTAS))


class _Layout(NamedTuple):
    """The places of the fields of one record, counted from its first byte."""

    size: int
    """Bytes of the record with its length."""
    time: int
    offset: int
    key: int
    """Place of the length of the key."""
    value: int
    """Place of the length of the value."""
    value_content: int
    key_content: int
    key_length: int
    """-1: None."""
    value_length: int


def walk_in_runs(
    data: bytes, position: int, count: int, base_offset: int, base_timestamp: int
) -> tuple[list[Fields], int]:
    """`layout.walk` for the records of a batch from the first one on."""
    records: list[Fields] = []
    chances = _CHANCES
    # Near the ends of an int64 every timestamp has to be checked.
    if not -(1 << 62) < base_timestamp < 1 << 62:
        chances = 0
    while (left := count - len(records)) > 0:
        if chances and left >= _MIN_RUN:
            layout = _layout_at(data, position) if _is_followed_by_its_like(data, position) else None
            run = 0 if layout is None else _alike(data, position, layout, len(records), left)
            if layout is not None and run >= _MIN_RUN:
                records += _cut(data, position, layout, run, base_offset + len(records), base_timestamp)
                position += run * layout.size
                continue
            chances -= 1
            left = min(left, _STEP)
        more, position = walk(data, position, left, base_offset, base_timestamp)
        records += more
    return records, position


def check_in_runs(data: bytes, position: int, first: int, count: int) -> tuple[int, int, int, int]:
    """`scan.check` in runs."""
    if count < _MIN_RUN:
        return check(data, position, first, count)
    delta, last = first, first + count
    reach = ONE_BYTE_REACH
    keyless = 0
    chances = _CHANCES
    while delta < last:
        left = last - delta
        if chances and left >= _MIN_RUN and _is_followed_by_its_like(data, position):
            layout = _layout_at(data, position)
            run = 0 if layout is None else _alike(data, position, layout, delta, left)
            if layout is not None and run >= _MIN_RUN:
                position += run * layout.size
                delta += run
                if layout.key_length < 0:
                    keyless += run
                if layout.offset - layout.time == 2:
                    reach = max(reach, TWO_BYTE_REACH)
                continue
        if chances:
            chances -= 1
            left = min(left, _STEP)
        before = delta
        position, delta, reach_here, keyless_here = check(data, position, delta, left)
        reach = max(reach, reach_here)
        keyless += keyless_here
        if delta < before + left:
            break  # it has seen very many headers
    return position, delta, reach, keyless


def _is_followed_by_its_like(data: bytes, start: int) -> bool:
    """True if the next record has the same length: a cheap test before the expensive one. IndexError at the end of
    `data`."""
    byte = data[start]
    if byte < 0x80:
        end = start + 1 + (byte >> 1)
        return data[end : end + 1] == data[start : start + 1]
    end = start + 2 + (data[start + 1] << 6) + (byte >> 1) - 0x40
    return data[end : end + 2] == data[start : start + 2]


def _layout_at(data: bytes, start: int) -> _Layout | None:
    """None for a malformed record, and for one with headers or with numbers of more than two bytes."""
    try:
        length, time = _short_number(data, start)
        time += 1  # the attributes
        _, offset = _short_number(data, time)
        _, key = _short_number(data, offset)
        key_length, key_content = _short_number(data, key)
        value = key_content + max(key_length, 0)
        value_length, value_content = _short_number(data, value)
        end = value_content + max(value_length, 0)
        if data[end] or time - 1 + length != end + 1 or min(length, key_length + 1, value_length + 1) < 0:
            return None
    except IndexError:
        return None  # numbers of more bytes are misread here; the walk reports errors
    if max(time - 1 - start, offset - time, key - offset, key_content - key, value_content - value) > 2:
        return None
    return _Layout(
        end + 1 - start,
        time - start,
        offset - start,
        key - start,
        value - start,
        value_content - start,
        key_content - start,
        key_length,
        value_length,
    )


def _short_number(data: bytes, position: int) -> tuple[int, int]:
    """(number, position after it); of one that has more than two bytes only the position, more than 2 away, is so."""
    byte = data[position]
    if byte < 0x80:
        return _ZIGZAG[byte], position + 1
    second = data[position + 1]
    if second < 0x80:
        byte += (second << 7) - 0x80
        return (byte >> 1) ^ -(byte & 1), position + 2
    return -2, position + 3


def _alike(data: bytes, start: int, layout: _Layout, delta: int, left: int) -> int:
    """Number of records from `start` on with this layout, and with offsets that count up from `delta`."""
    size, time, offset, key, value, value_content, key_content = layout[:7]
    width = key - offset
    if width != (1 if delta < _ONE_BYTE_DELTAS else 2) or delta >= _TWO_BYTE_DELTAS:
        return 0
    limit = _ONE_BYTE_DELTAS if width == 1 else _TWO_BYTE_DELTAS
    run = min(left, limit - delta, (len(data) - start) // size)
    if width == 1:
        run = _same(data[start + offset : start + run * size : size], _OFFSETS[delta : delta + run])
    else:
        run = _same(data[start + offset : start + run * size : size], _LOW_OFFSETS[delta : delta + run])
        run = _same(data[start + offset + 1 : start + run * size : size], _HIGH_OFFSETS[delta : delta + run])
    fixed = (*range(time - 1), *range(key, key_content), *range(value, value_content), size - 1)
    for place in fixed:
        column = data[start + place : start + run * size : size]
        run = len(column) - len(column.lstrip(column[:1]))
    for place in range(time, offset):
        column = data[start + place : start + run * size : size]
        run = len(column) - len(column.lstrip(_LAST if place == offset - 1 else _MORE))
    return run


def _same(column: bytes, expected: bytes) -> int:
    """Number of expected bytes before the first other one."""
    if column == expected:
        return len(column)
    return next(index for index, (found, wanted) in enumerate(zip(column, expected, strict=True)) if found != wanted)


def _cut(data: bytes, start: int, layout: _Layout, run: int, first_offset: int, base_timestamp: int) -> list[Fields]:
    size = layout.size
    stop = start + run * size
    times = data[start + layout.time : stop : size]
    if layout.offset - layout.time == 1:
        timestamps = [base_timestamp + _ZIGZAG[raw] for raw in times]
    else:
        pairs = zip(times, data[start + layout.time + 1 : stop : size], strict=True)
        raws = [(high << 7) + low - 0x80 for low, high in pairs]
        timestamps = [base_timestamp + ((raw >> 1) ^ -(raw & 1)) for raw in raws]
    view = memoryview(data)[start:stop]
    keys = _contents(view, layout.key_content, size, layout.key_length)
    values = _contents(view, layout.value_content, size, layout.value_length)
    return list(zip(range(first_offset, first_offset + run), timestamps, keys, values, repeat(_NO_HEADERS)))


def _contents(run: memoryview, place: int, size: int, length: int) -> Iterable[bytes | None]:
    """The contents at `place` of each record."""
    if length < 0:
        return repeat(None)
    return [content for (content,) in iter_unpack(f"{place}x{length}s{size - place - length}x", run)]
