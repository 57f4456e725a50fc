"""`ResponseParts`: one response out of parts that arrive at different times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from barnabas.broker.coordinator.outcome import Reply
from barnabas.protocol.errors import ErrorCode

Part = TypeVar("Part")


class ResponseParts(Generic[Part]):
    """Collects one part for each place, in whatever order they arrive."""

    def __init__(self, count: int, finish: Callable[[list[Part]], None]) -> None:
        """`finish` is called once, with all parts ordered by place."""
        self._parts: dict[int, Part] = {}
        self._count = count
        self._finish = finish
        if count == 0:
            finish([])

    def reply(self, place: int, refused: Callable[[ErrorCode], Part]) -> Reply:
        """A reply that fills this place; `refused` makes the part from an error code."""
        return Reply(partial(self.put, place), lambda code: self.put(place, refused(code)))

    def put(self, place: int, part: Part) -> None:
        assert place not in self._parts, "a place is filled once"
        self._parts[place] = part
        if len(self._parts) == self._count:
            self._finish([self._parts[each] for each in range(self._count)])
