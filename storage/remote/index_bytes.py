"""Core: look-ups in the index files of a remote segment, which readers hold as bytes.

The formats are those of local segments (`storage.indexes`, `storage.transaction_index`). What a store returns may be
damaged: a look-up in damaged bytes fails with `CorruptIndex`, or names a wrong place, which the reader of the batches
there notices.
"""

from __future__ import annotations

import struct

from barnabas.runtime.at_once import Stepwise
from barnabas.storage.indexes import CorruptIndex, OffsetPosition
from barnabas.storage.transaction_index import ENTRY_BYTES, AbortedTransaction, read_entries

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES = _OFFSET_ENTRY.size, _TIME_ENTRY.size
_ABORTED_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = 3
ENTRIES_IN_A_STEP = 1_000


def position_of(index: bytes, base_offset: int, offset: int) -> OffsetPosition:
    """The last entry of an offset index at or below `offset`; the start of the segment if there is none."""
    slot = _floor(index, _OFFSET_ENTRY, 0, offset - base_offset)
    return _offset_entry(index, base_offset, slot)


def entry_after(index: bytes, base_offset: int, position: int) -> OffsetPosition | None:
    """The first entry of an offset index behind a position in the segment; None if there is none."""
    slot = _floor(index, _OFFSET_ENTRY, 1, position) + 1
    return _offset_entry(index, base_offset, slot) if slot * _OFFSET_ENTRY.size < len(index) else None


def offset_at_time(index: bytes, base_offset: int, timestamp: int) -> int:
    """The offset of the last entry of a time index at or before `timestamp`: earlier records are older. The base offset
    if there is none."""
    slot = _floor(index, _TIME_ENTRY, 0, timestamp)
    if slot < 0:
        return base_offset
    return base_offset + int(_TIME_ENTRY.unpack_from(index, slot * _TIME_ENTRY.size)[1])


def last_position(entry: bytes, base_offset: int) -> int:
    """The position in the last entry of an offset index, of which these are the last bytes; 0 if it is empty."""
    return _offset_entry(entry, base_offset, 0).position if entry else 0


def last_timestamp(entry: bytes) -> int:
    """The largest timestamp of a time index, of which these are the last bytes; -1 if it is empty."""
    return int(_TIME_ENTRY.unpack(entry)[0]) if entry else -1


def aborted_in(
    index: bytes, from_offset: int, upper_offset: int, end_offset: int
) -> Stepwise[tuple[list[AbortedTransaction], bool]]:
    """Transactions of a transaction index with records or their marker in [from_offset, upper_offset) and a marker
    below `end_offset`, and whether later markers cannot belong to any more. In steps."""
    found: list[AbortedTransaction] = []
    first = _floor(index, _ABORTED_ENTRY, _LAST_OFFSET, from_offset - 1) + 1
    for count, entry in enumerate(read_entries(index[first * ENTRY_BYTES :], "a remote transaction index"), 1):
        if count % ENTRIES_IN_A_STEP == 0:
            yield None
        if entry.last_offset >= end_offset:
            break
        if entry.first_offset < upper_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_offset:
            return found, True
    return found, False


def _offset_entry(index: bytes, base_offset: int, slot: int) -> OffsetPosition:
    if slot < 0:
        return OffsetPosition(base_offset, 0)
    relative, position = _OFFSET_ENTRY.unpack_from(index, slot * _OFFSET_ENTRY.size)
    if relative < 0 or position < 0:
        raise CorruptIndex(f"entry {slot} of a remote offset index, ({relative}, {position}), has a negative number")
    return OffsetPosition(base_offset + relative, position)


def _floor(index: bytes, entry: struct.Struct, field: int, target: int) -> int:
    """The last slot whose field is at most `target`; -1 if there is none."""
    if len(index) % entry.size:
        raise CorruptIndex(f"{len(index)} bytes of a remote index are not a multiple of {entry.size}")
    low, high = 0, len(index) // entry.size
    while low < high:
        middle = (low + high) // 2
        if entry.unpack_from(index, middle * entry.size)[field] <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1
