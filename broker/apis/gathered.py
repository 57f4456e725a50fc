"""One answer out of many parts, each of which comes at its own time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from broker.coordinator.outcome import Reply
from protocol.errors import ErrorCode

Part = TypeVar("Part")


class Gathered(Generic[Part]):
    """Parts, in the order of the questions once all are there."""

    def __init__(self, count: int, finish: Callable[[list[Part]], None]) -> None:
        """`finish` is called once, with all parts in their order."""
        self._parts: dict[int, Part] = {}
        self._count = count
        self._finish = finish
        if count == 0:
            finish([])

    def reply(self, place: int, refused: Callable[[ErrorCode], Part]) -> Reply:
        """Where the part of this place goes; `refused` makes one of an error."""
        return Reply(partial(self.put, place), lambda code: self.put(place, refused(code)))

    def put(self, place: int, part: Part) -> None:
        assert place not in self._parts, "a part comes once"
        self._parts[place] = part
        if len(self._parts) == self._count:
            self._finish([self._parts[each] for each in range(self._count)])
