"""Core: keeps the order of those who cannot be served at once. Knows nobody who stands in a line, nor why."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

Turn = Callable[[], bool]
"""Whose turn it is. Gives whether that is over; if it is not, `Lines.over` is to be called when it is."""


class Lines(Generic[Key]):
    """A line for each key; there is none while nobody waits."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[Key, deque[Turn]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def enter(self, key: Key, turn: Turn) -> None:
        """Take the turn at once, or when those before have had theirs."""
        line = self._lines.get(key)
        if line is not None:
            line.append(turn)
        elif not turn():
            self._lines[key] = deque()

    def over(self, key: Key) -> None:
        """Whoever is first in the line is done: on to the next."""
        line = self._lines[key]
        while line:
            if not line.popleft()():
                return
        del self._lines[key]
