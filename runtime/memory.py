"""Core: the memory that the connections of a node hold, and the connections that are closed above its limits.

Two sums are kept. Requests count from their first byte until their answer leaves: their frames, what large ones are
decoded to, and answers that are being built. Answers count while their peers do not take them. Each sum has a limit.
At the limit of requests clients are not read; work that grows beyond a limit costs the connection that holds most.
Bytes of files on their way to a socket are not counted: they are in no process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

REQUESTS_PART = 2
"""Requests may take one half of a node's memory limit. `queued.max.request.bytes` may lower the sum at which clients
are not read."""

ANSWERS_PART = 16
"""Answers that their peers do not take may hold this part of it."""

SESSIONS_PART = 16
"""Fetch sessions may hold this part of it. Without a session a client names all its partitions in each fetch."""


GROUPS_PART = 4
"""Groups may hold this part of it: what their members sent, as long as they are members."""


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
    """At this sum clients are not read."""
    most_answer_bytes: int
    most_grown_bytes: int = 0
    """Above this sum of requests a connection is closed at once."""
    request_bytes: int = 0
    answer_bytes: int = 0
    closed: int = 0
    """Connections that were closed for what they held."""
    holders: Callable[[], Iterable[Holder]] = tuple
    on_room: Callable[[], None] = lambda: None
    """Called when clients may be read again."""

    @classmethod
    def of(cls, limit_bytes: int, queued_max_request_bytes: int) -> MemoryBudget:
        """`queued_max_request_bytes`: -1 for none, as in Kafka."""
        requests = limit_bytes // REQUESTS_PART
        if queued_max_request_bytes > 0:
            requests = min(requests, queued_max_request_bytes)
        return cls(requests, limit_bytes // ANSWERS_PART, limit_bytes // REQUESTS_PART)

    @property
    def is_full(self) -> bool:
        """No further request may be read from a client."""
        return self.request_bytes >= self.most_request_bytes

    def requests_changed(self, by: int) -> None:
        before = self.request_bytes
        self.request_bytes = before + by
        if self.request_bytes < self.most_request_bytes <= before:
            self.on_room()

    def answers_changed(self, by: int) -> None:
        self.answer_bytes += by
        while by > 0 and self.answer_bytes > self.most_answer_bytes:
            if not self._close_largest(lambda holder: holder.answer_bytes, "it does not take its answers"):
                return

    def make_room(self) -> None:
        """Close the largest holders of requests until clients may be read: requests were full for a while."""
        self._shrink_requests(self.most_request_bytes - 1)

    def make_room_for_growth(self) -> None:
        """Close the largest holders of requests if work under way has grown beyond the limit."""
        self._shrink_requests(max(self.most_grown_bytes, self.most_request_bytes))

    def _shrink_requests(self, most_bytes: int) -> None:
        while self.request_bytes > most_bytes:
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
