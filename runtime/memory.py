"""Core: how much memory the connections of a node hold, and who has to let go of it.

Two sums are kept: requests that came, whole or in part, and are not answered yet; and answers that were made, and that
their peers do not take. Each has a limit. Above it the largest holder goes first.
Bytes of files on their way to a socket are not counted: they are in no process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

REQUESTS_PART = 2
"""Requests may take one half of a node's memory limit, unless `queued.max.request.bytes` allows less."""

ANSWERS_PART = 16
"""Answers that nobody takes may hold this part of it."""


class Holder(Protocol):
    """One connection."""

    @property
    def request_bytes(self) -> int: ...

    @property
    def answer_bytes(self) -> int: ...

    def abort(self, reason: str) -> None: ...


@dataclass(slots=True)
class MemoryBudget:
    """The sums and limits of one server, in bytes."""

    most_request_bytes: int
    most_answer_bytes: int
    request_bytes: int = 0
    answer_bytes: int = 0
    closed: int = 0
    """Connections that were closed for what they held."""
    holders: Callable[[], Iterable[Holder]] = tuple
    on_room: Callable[[], None] = lambda: None
    """Called when requests have room again."""

    @classmethod
    def of(cls, limit_bytes: int, queued_max_request_bytes: int) -> MemoryBudget:
        """`queued_max_request_bytes` as Kafka has it: -1 is none."""
        requests = limit_bytes // REQUESTS_PART
        if queued_max_request_bytes > 0:
            requests = min(requests, queued_max_request_bytes)
        return cls(requests, limit_bytes // ANSWERS_PART)

    @property
    def is_full(self) -> bool:
        """No further request may be read from a client."""
        return self.request_bytes >= self.most_request_bytes

    def requests_changed(self, by: int) -> None:
        was_full = self.is_full
        self.request_bytes += by
        if was_full and not self.is_full:
            self.on_room()

    def answers_changed(self, by: int) -> None:
        self.answer_bytes += by
        while by > 0 and self.answer_bytes > self.most_answer_bytes:
            if not self._close_largest(lambda holder: holder.answer_bytes, "it does not take its answers"):
                return

    def make_room(self) -> None:
        """Requests were full for a while: close who holds the most of what is not complete or not answered."""
        while self.is_full:
            if not self._close_largest(lambda holder: holder.request_bytes, "it holds the most of all requests"):
                return

    def _close_largest(self, size_of: Callable[[Holder], int], why: str) -> bool:
        holding = [holder for holder in self.holders() if size_of(holder) > 0]
        if not holding:
            return False
        largest = max(holding, key=size_of)
        self.closed += 1
        largest.abort(f"the memory for connections is used up, and {why} ({size_of(largest)} bytes)")
        return True


class Counted:
    """The part of one connection in a sum of the budget."""

    __slots__ = ("_changed", "size_bytes")

    def __init__(self, changed: Callable[[int], None]) -> None:
        """`changed` adds to the sum."""
        self._changed = changed
        self.size_bytes = 0

    def set(self, size_bytes: int) -> None:
        change, self.size_bytes = size_bytes - self.size_bytes, size_bytes
        if change:
            self._changed(change)
