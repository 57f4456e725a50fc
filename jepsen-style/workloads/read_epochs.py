"""Under which leader epochs the records were taken that an operation polled: the note `read_epochs`.

Neighbours of one epoch are one range, so that a note stays short however much is polled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NOTE = "read_epochs"


class ReadEpochs:
    """Leader epochs of the records of one operation, in the order in which they were polled."""

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []
        """Key, first offset, last offset, epoch."""
        self._open: dict[int, list[int]] = {}
        """By key: the range that may still grow."""

    def add(self, key: int, offset: int, epoch: int) -> None:
        """-1: the library does not know the epoch."""
        range_ = self._open.get(key)
        if range_ is not None and range_[3] == epoch and offset > range_[2]:
            range_[2] = offset
        elif epoch < 0:
            self._open.pop(key, None)
        else:
            range_ = self._open[key] = [key, offset, offset, epoch]
            self._ranges.append(range_)

    def note(self) -> dict[str, Sequence[Any]]:
        """Empty if nothing is known."""
        return {NOTE: self._ranges} if self._ranges else {}
