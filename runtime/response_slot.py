"""The place for the answer to one request of a connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.runtime.request import Timed
from barnabas.runtime.steps import RunningSteps, Steps
from barnabas.runtime.turns import Share
from barnabas.runtime.world import Chunk, ConnectionLost


class Driver(Protocol):
    """Takes steps of requests: `runtime.step_driver`."""

    async def take_all(self, steps: RunningSteps) -> None: ...


class Owner(Protocol):
    """The connection of a line."""

    closed: bool
    ended: bool
    share: Share

    @property
    def driver(self) -> Driver:
        """Takes the steps of its requests."""

    def request_grew(self) -> None:
        """A request in line takes more memory."""

    def answers_left(self) -> None:
        """Answers were sent."""

    def answers_taken(self) -> None:
        """The peer took some of its answers."""

    def mute(self, throttle_ms: int, still_held_back: Callable[[], int] | None = None) -> None:
        """Begin no other request for this long."""

    def abort(self, reason: str) -> None: ...

    def lose(self, lost: ConnectionLost) -> None: ...


class Line(Protocol):
    """The answers that a connection owes: `runtime.responses`."""

    def filled(self, slot: ResponseSlot) -> None:
        """A slot of the line was filled or dropped."""

    def request_grew(self, size_bytes: int) -> None:
        """The request of a slot in line takes more memory."""


class ResponseSlot:
    """An `AnswerSlot` that is a place in its connection's line."""

    __slots__ = ("_api_key", "_connection", "_line", "chunks", "done", "request_bytes", "size_bytes", "timed")

    def __init__(self, line: Line, connection: Owner, api_key: int, request_bytes: int) -> None:
        self._line = line
        self._connection = connection
        self._api_key = api_key
        self.request_bytes = request_bytes
        self.chunks: Sequence[Chunk] = ()
        self.size_bytes = 0
        self.done = False
        self.timed: Timed | None = None

    @property
    def connection_closed(self) -> bool:
        return self._connection.closed

    @property
    def connection_ended(self) -> bool:
        return self._connection.ended

    def fill(self, chunks: Sequence[Chunk]) -> None:
        assert not self.done, "a response slot was filled twice"
        self.done = True
        size = 0
        for chunk in chunks:
            size += len(chunk)
        if not self._connection.closed:
            self.chunks = chunks
            self.size_bytes = size
        self._line.filled(self)

    def drop(self) -> None:
        assert not self.done, "a response slot was filled twice"
        self.done = True
        self._line.filled(self)

    def abort(self, reason: str) -> None:
        self.done = True
        self._connection.abort(reason)

    def grow(self, size_bytes: int) -> None:
        if not self.done:
            self.request_bytes += size_bytes
            self._line.request_grew(size_bytes)

    def mute(self, throttle_ms: int, still_held_back: Callable[[], int] | None = None) -> None:
        self._connection.mute(throttle_ms, still_held_back)

    def comes_from_node(self) -> None:
        self._connection.share.is_node = True

    async def take_steps(self, steps: Steps) -> None:
        await self._connection.driver.take_all(RunningSteps(steps, self._api_key))
