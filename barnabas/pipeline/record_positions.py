"""Core: the positions of the records in a batch, the one thing that cannot be read for all records at once.

A record has only its own length, so its position follows from the record before. Generated records often have equal
sizes: such a run lies at equal distances, which a few slices prove. All other records are walked one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from barnabas.pipeline.varints import Ints
from barnabas.protocol.records.batch import CorruptBatch

_MIN_RUN = 16
"""For fewer records the slices cost more than they save."""
_MAX_SHORT_RUNS = 2
"""After this many runs that were too short, the rest of the batch is walked."""
_STEP = 32
"""Number of records walked one by one after a run that was too short."""


class RecordPositions:
    """Collects the positions of records, batch by batch."""

    def __init__(self) -> None:
        self._pieces: list[Iterable[int]] = []

    def all(self) -> Ints:
        """All positions, in the order of the walks."""
        arrays = [
            np.asarray(piece, dtype=np.int64) if isinstance(piece, list) else _arange(piece) for piece in self._pieces
        ]
        return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)

    def walk(self, data: bytes, position: int, end: int, count: int) -> None:
        """Add the positions of `count` records. CorruptBatch unless they fill `data` from `position` to `end`."""
        attempts = _MAX_SHORT_RUNS
        try:
            while count > 0:
                if attempts and count >= _MIN_RUN:
                    size, run = _run(data, position, end, count)
                    if run >= _MIN_RUN:
                        self._pieces.append(range(position, position + run * size, size))
                        position += run * size
                        count -= run
                        continue
                    attempts -= 1
                step = min(count, _STEP) if attempts else count
                position = self._walk_some(data, position, step)
                count -= step
                if position > end:
                    break
        except IndexError:
            position = -1
        if position != end:
            raise CorruptBatch("the records do not end at the end of their batch")

    def _walk_some(self, data: bytes, position: int, count: int) -> int:
        places: list[int] = []
        add = places.append
        for _ in range(count):
            add(position)
            byte = data[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)
            else:
                second = data[position + 1]
                if second < 0x80:
                    position += 2 + (second << 6) + (byte >> 1) - 0x40
                else:
                    size = _size(data, position)
                    position += size
                    continue
            if byte & 1:
                raise CorruptBatch("a record has a negative length")
        if self._pieces and isinstance(self._pieces[-1], list):
            self._pieces[-1] += places
        else:
            self._pieces.append(places)
        return position


def _arange(piece: Iterable[int]) -> Ints:
    assert isinstance(piece, range)
    return np.arange(piece.start, piece.stop, piece.step, dtype=np.int64)


def _size(data: bytes, position: int) -> int:
    """The size of the record at `position`, with its length field. IndexError at the end of `data`."""
    raw = 0
    for index in range(5):
        byte = data[position + index]
        raw |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if raw & 1 or raw > 0xFFFF_FFFF:
                raise CorruptBatch("a record has a negative length")
            return index + 1 + (raw >> 1)
    raise CorruptBatch("the length of a record has more than five bytes")


def _run(data: bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """(size of the record at `position`, number of consecutive records of that size)"""
    size = _size(data, position)
    run = min(count, (end - position) // size)
    if run < _MIN_RUN or data[position + size] != data[position]:
        return size, 0
    # Compare each byte of the length field for all records of the presumed run.
    place = position
    while True:
        column = data[place : place + (run - 1) * size + 1 : size]
        run = len(column) - len(column.lstrip(column[:1]))
        if data[place] < 0x80:
            return size, run
        place += 1
