"""Moves the bytes of one connection through the proxy: two sockets, a reader and a writer for each direction."""

from __future__ import annotations

from typing import Protocol

import trio

from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.world import Connection, ConnectionLost

MOST_BUFFERED_BYTES = 4 << 20
"""Buffer of one direction of one connection; a sender of more waits."""
_RECEIVE_BYTES = 128 << 10


class Side(Protocol):
    """One direction as the proxy passes it on: `Stream`, or a side of a `Dialogue`."""

    buffered: int
    is_reset: bool
    is_over: bool

    def receive(self, data: bytes, now: float) -> Stepwise[None]: ...

    def end(self, now: float) -> None: ...

    def take(self, now: float) -> list[bytes]: ...

    def next_due(self, now: float) -> float | None: ...


class Proxied:
    """One connection through the proxy."""

    def __init__(
        self, requests: Side, answers: Side, near: Connection, far: Connection, *, answers_here: bool = False
    ) -> None:
        """`answers_here`: requests may be answered by the proxy, so that a client is read no faster than it reads."""
        self.there = _Way(requests, near, far)
        self.back = _Way(answers, far, near)
        self.there.waits_for_other = answers_here
        # Requests may be answered here, and an answer may let further requests pass.
        self.there.other, self.back.other = self.back, self.there

    @property
    def lost_target(self) -> bool:
        """The target has ended it."""
        return self.back.sender_gone

    @property
    def was_reset(self) -> bool:
        return self.there.stream.is_reset or self.back.stream.is_reset

    async def run(self) -> None:
        """Until one direction is over or broken; then the other one has nobody to speak to."""
        async with trio.open_nursery() as nursery:
            for way in (self.there, self.back):
                nursery.start_soon(way.read)
                nursery.start_soon(way.write, nursery.cancel_scope)

    def wake(self) -> None:
        self.there.wake()
        self.back.wake()

    async def answered_some(self) -> None:
        """Wait until more bytes came from the target."""
        await self.back.received.wait()


class _Way:
    """One direction, with its two sockets."""

    def __init__(self, stream: Side, source: Connection, target: Connection) -> None:
        self.stream = stream
        self._source = source
        self._target = target
        self._unsent: list[memoryview] = []
        self._news = trio.Event()
        self._room = trio.Event()
        self.received = trio.Event()
        """Set, and replaced, whenever bytes came."""
        self.sender_gone = False
        self.other = self
        self.waits_for_other = False

    def wake(self) -> None:
        self._news.set()

    async def read(self) -> None:
        buffer = memoryview(bytearray(_RECEIVE_BYTES))
        try:
            while True:
                count = await self._source.receive_into(buffer)
                for _ in self.stream.receive(bytes(buffer[:count]), trio.current_time()):
                    await trio.lowlevel.checkpoint()
                self.wake()
                self.other.wake()
                received, self.received = self.received, trio.Event()
                received.set()
                while self._is_full():
                    self._room = trio.Event()
                    await self._room.wait()
        except ConnectionLost:
            self.sender_gone = True
            self.stream.end(trio.current_time())
            self.wake()
            self.other.wake()

    async def write(self, both: trio.CancelScope) -> None:
        stream = self.stream
        try:
            while True:
                self._news = trio.Event()
                self._unsent += map(memoryview, stream.take(trio.current_time()))
                self.make_room()
                self.other.make_room()
                while self._unsent:
                    sent = self._target.send_now(self._unsent)
                    self._forget(sent)
                    if self._unsent and not sent:
                        await self._target.wait_writable()
                if stream.is_reset or stream.is_over:
                    break
                due = stream.next_due(trio.current_time())
                with trio.move_on_at(float("inf") if due is None else due):
                    await self._news.wait()
        except ConnectionLost:
            # Its reader finds out as well, and the news goes back the other way, as far as that carries.
            return
        both.cancel()

    def make_room(self) -> None:
        """Let the reader look again."""
        self._room.set()

    def _is_full(self) -> bool:
        if self.stream.buffered > MOST_BUFFERED_BYTES:
            return True
        return self.waits_for_other and self.other.stream.buffered > MOST_BUFFERED_BYTES

    def _forget(self, sent: int) -> None:
        """Forgets bytes that were sent."""
        while sent:
            first = self._unsent[0]
            if sent < len(first):
                self._unsent[0] = first[sent:]
                return
            sent -= len(first)
            del self._unsent[0]
