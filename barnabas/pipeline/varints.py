"""Core: zigzag varints of many records at once, with one numpy step for each byte of the longest of them.

Positions are int64 arrays. Reading beyond the data is an IndexError.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from barnabas.protocol.records.batch import CorruptBatch

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10


def read_varints(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """(the int32 at each position, positions after them). CorruptBatch for a varint of more than five bytes."""
    values, positions = _read(data, positions, _MAX_VARINT_BYTES)
    if len(values) and (values.max() > 0x7FFF_FFFF or values.min() < -0x8000_0000):
        raise CorruptBatch("a varint exceeds 32 bits")
    return values, positions


def read_varlongs(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """Like `read_varints`, for int64 in at most ten bytes."""
    return _read(data, positions, _MAX_VARLONG_BYTES)


def _read(data: Bytes, positions: Ints, most_bytes: int) -> tuple[Ints, Ints]:
    first = data[positions]
    more = first > 0x7F
    positions = positions + 1
    if not more.any():
        return _unzigzag(first.astype(np.uint64)), positions
    if more.all():
        return _read_all_longer(data, first, positions, most_bytes)
    values = _unzigzag(first.astype(np.uint64))
    longer = np.flatnonzero(more)
    values[longer], positions[longer] = _read_all_longer(data, first[longer], positions[longer], most_bytes)
    return values, positions


def _read_all_longer(data: Bytes, first: Bytes, positions: Ints, most_bytes: int) -> tuple[Ints, Ints]:
    """The varints whose first byte has the continuation bit."""
    second = data[positions]
    positions = positions + 1
    raw = (first & 0x7F).astype(np.uint64) | (second & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7)
    left = np.flatnonzero(second > 0x7F)
    shift = 14
    while len(left):
        if shift >= most_bytes * 7:
            raise CorruptBatch(f"a varint has more than {most_bytes} bytes")
        byte = data[positions[left]]
        positions[left] += 1
        raw[left] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
        left = left[byte > 0x7F]
        shift += 7
    return _unzigzag(raw), positions


def _unzigzag(raw: npt.NDArray[np.uint64]) -> Ints:
    signed = (raw >> np.uint64(1)).view(np.int64)
    odd = (raw & np.uint64(1)).view(np.int64)
    return signed ^ -odd
