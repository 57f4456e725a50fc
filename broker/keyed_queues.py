"""Core: FIFO queues by key, for work that has to wait until earlier work of the same key is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

Turn = Callable[[], bool]
"""Begins the work. Returns whether it is already done; if not, `KeyedQueues.done` has to be called later."""


class KeyedQueues(Generic[Key]):
    """One queue for each key that has unfinished work; a key without any takes no memory."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[Key, deque[Turn]] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def enter(self, key: Key, turn: Turn) -> None:
        """Call `turn` at once, or after all that entered before under this key is done."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(turn)
        elif not turn():
            self._queues[key] = deque()

    def done(self, key: Key) -> None:
        """The work that began last under this key is done: begin the next."""
        queue = self._queues[key]
        while queue:
            if not queue.popleft()():
                return
        del self._queues[key]
