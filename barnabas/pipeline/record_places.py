"""Where the records of a batch begin: the one thing that cannot be read of all of them at once. A core.

Each record says only how long it is, so the next is found from the one before. Records of machines often have the
same size; then all of a run lie at one distance, which a few slices show. Any others are walked one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from barnabas.pipeline.varints import Ints
from protocol.records.batch import CorruptBatch

_MIN_RUN = 16
"""With fewer records the slices cost more than they save."""
_CHANCES = 2
"""After so many runs that were too short no more are looked for in a batch."""
_STEP = 32
"""So many records are walked one by one after a run that was too short."""


class RecordPlaces:
    """Collects the places of the first bytes, batch by batch."""

    def __init__(self) -> None:
        self._pieces: list[Iterable[int]] = []

    def all(self) -> Ints:
        """In the order in which they were found."""
        arrays = [
            np.asarray(piece, dtype=np.int64) if isinstance(piece, list) else _arange(piece) for piece in self._pieces
        ]
        return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)

    def walk(self, data: bytes, position: int, end: int, count: int) -> None:
        """Find `count` records that fill `data` from `position` to `end`. CorruptBatch if they do not."""
        chances = _CHANCES
        try:
            while count > 0:
                if chances and count >= _MIN_RUN:
                    size, run = _run(data, position, end, count)
                    if run >= _MIN_RUN:
                        self._pieces.append(range(position, position + run * size, size))
                        position += run * size
                        count -= run
                        continue
                    chances -= 1
                step = min(count, _STEP) if chances else count
                position = self._walk_some(data, position, step)
                count -= step
                if position > end:
                    break
        except IndexError:
            position = -1
        if position != end:
            raise CorruptBatch("records that do not end where their batch does")

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
                raise CorruptBatch("a record of negative length")
        if self._pieces and isinstance(self._pieces[-1], list):
            self._pieces[-1] += places
        else:
            self._pieces.append(places)
        return position


def _arange(piece: Iterable[int]) -> Ints:
    assert isinstance(piece, range)
    return np.arange(piece.start, piece.stop, piece.step, dtype=np.int64)


def _size(data: bytes, position: int) -> int:
    """Of the record there, with its own length. IndexError at the end of `data`."""
    raw = 0
    for index in range(5):
        byte = data[position + index]
        raw |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if raw & 1 or raw > 0xFFFF_FFFF:
                raise CorruptBatch("a record of negative length")
            return index + 1 + (raw >> 1)
    raise CorruptBatch("a record whose length has more than five bytes")


def _run(data: bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """(size of the record there, how many of that size follow each other from it on)"""
    size = _size(data, position)
    run = min(count, (end - position) // size)
    if run < _MIN_RUN or data[position + size] != data[position]:
        return size, 0
    # The length of the next record says where the one after it begins: so each byte of it is compared for all.
    place = position
    while True:
        column = data[place : place + (run - 1) * size + 1 : size]
        run = len(column) - len(column.lstrip(column[:1]))
        if data[place] < 0x80:
            return size, run
        place += 1
