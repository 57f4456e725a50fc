"""One open connection of a channel, and the calls that wait on it for their answers.

A call is a task that is woken (`Waiter`), or an object that is called in the turn in which the answer arrives (`Talk`,
`PendingCall`). Knows correlation ids, and nothing else of the content.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import trio

from barnabas.protocol.client_exchange import MAX_HANDSHAKE_BYTES
from barnabas.protocol.errors import MalformedMessage
from barnabas.runtime.frames import FrameError, FrameReader
from barnabas.runtime.outgoing import Outgoing
from barnabas.runtime.renewal import Renewal
from barnabas.runtime.security import EndedByAlert
from barnabas.runtime.world import Chunk, Connection, ConnectionLost

MAX_RESPONSE_BYTES = 2**31 - 1
"""The protocol's own bound; memory is allocated only as the bytes arrive."""

SCRATCH_BYTES = 32 * 1024


class ChannelError(Exception):
    """A call that got no answer."""


class NotSent(ChannelError):
    """The request certainly did not reach the peer. `refused`: the connection was refused by the peer's host."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused


class ConnectionFailed(ChannelError):
    """The connection ended before the answer came: the request may have been processed."""


class CallTimedOut(ChannelError):
    """No answer in time: the request may have been processed, or may yet be."""


class PendingCall(Protocol):
    """One call under way. Either `take` or `fail` is called, once."""

    @property
    def deadline(self) -> float:
        """By trio's clock. At the deadline the connection is closed."""

    def take(self, frame: bytearray) -> None:
        """The answer."""

    def fail(self, error: Exception) -> None:
        """There will be no answer."""

    def overdue(self) -> CallTimedOut:
        """The error of a call whose deadline is over."""


class Waiter:
    """One call under way; it is woken with a frame or with an error."""

    __slots__ = ("error", "frame", "woken")

    deadline = math.inf
    """The waiting task keeps its own deadline."""

    def __init__(self) -> None:
        self.woken = trio.Event()
        self.frame: bytearray | None = None
        self.error: Exception | None = None

    def take(self, frame: bytearray) -> None:
        self.frame = frame
        self.woken.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.woken.set()

    def overdue(self) -> CallTimedOut:
        return CallTimedOut("no answer in time")


class Talk(Waiter):
    """A request and its answer, the next request, and so on, each sent in the turn in which the answer arrives."""

    __slots__ = ("_abandoned", "_next", "_send", "asked_at")

    def __init__(self, send: Callable[[Any, Talk], object], answer: Callable[[bytearray], Any]) -> None:
        """`send` sends a request; `answer` returns the next request for a frame, or None."""
        super().__init__()
        self._send = send
        self._next = answer
        self._abandoned = False
        self.asked_at = 0.0

    def ask(self, request: Any) -> None:
        self.asked_at = trio.current_time()
        self._send(request, self)

    def take(self, frame: bytearray) -> None:
        if self._abandoned:
            return
        try:
            request = self._next(frame)
            if request is None:
                self.woken.set()
            else:
                self.ask(request)
        except Exception as error:
            # The error belongs to the task that waits for the answers, not to the link that read this one.
            self.fail(error)

    def abandon(self) -> None:
        """Ignore further answers."""
        self._abandoned = True


class Link:
    """One open connection of a channel, with the calls that wait on it."""

    def __init__(self, connection: Connection, nursery: trio.Nursery, on_lost: Callable[[], None]) -> None:
        self._connection = connection
        self._outgoing = Outgoing(connection)
        self._nursery = nursery
        self._on_lost = on_lost
        self._waiters: dict[int, PendingCall] = {}
        self._emptied = trio.Event()
        """Set when the queue is empty."""
        self._reader = FrameReader(connection, MAX_HANDSHAKE_BYTES, bytearray(SCRATCH_BYTES + 4))
        self.versions: dict[int, tuple[int, int]] = {}
        """Empty until the handshake is over."""
        self.closed = False
        self.refused_by_tls = False
        """The peer ended the handshake by an alert of TLS, or speaks TLS where we do not."""
        self._renewal: Renewal | None = None
        """The session has an end, and must be renewed."""
        self._patience = trio.CancelScope()
        """Receiving is interrupted at its deadline to look for overdue calls."""

    @property
    def in_flight(self) -> int:
        return len(self._waiters)

    def settle(self, versions: dict[int, tuple[int, int]]) -> None:
        """The handshake is over: calls are allowed."""
        self._reader.max_frame_bytes = MAX_RESPONSE_BYTES
        self.versions = versions

    def renew_by(self, renewal: Renewal | None) -> None:
        """A session has begun that must be renewed, or has no end. Send the requests that were held back."""
        before, self._renewal = self._renewal, renewal
        if before is None:
            return
        for correlation_id, chunks in before.held:
            waiter = self._waiters.pop(correlation_id, None)
            if waiter is None:
                continue
            try:
                self.post_now(correlation_id, chunks, waiter)
            except NotSent as error:
                waiter.fail(error)
        before.over.set()

    async def run(self) -> None:
        """Receive answers until the connection ends."""
        try:
            while not self.closed:
                with self._patience as patience:
                    await self._receive()
                if patience.cancelled_caught:
                    self._patience = trio.CancelScope()
                    self.look_at(self._fail_overdue())
        except FrameError as error:
            self.refused_by_tls = error.is_tls and not self.versions
            self._lose(error if self.versions else MalformedMessage(_hint(error)))
        except (ConnectionLost, MalformedMessage) as error:
            self._lose(error)
        finally:
            self.close("the channel is closing")

    def look_at(self, deadline: float) -> None:
        """Look for overdue calls at that time, or earlier."""
        if deadline < self._patience.deadline:  # noqa: PLR1730 - setting it is what costs
            self._patience.deadline = deadline

    def post(self, correlation_id: int, chunks: list[Chunk], waiter: PendingCall) -> None:
        """Send one request and register `waiter` for its answer; during a re-authentication the request waits for its
        end. Raises NotSent if it was certainly not sent."""
        renewal = self._renewal
        if renewal is None or self.closed or not renewal.holds():
            self.post_now(correlation_id, chunks, waiter)
        else:
            self._waiters[correlation_id] = waiter
            renewal.held.append((correlation_id, chunks))

    def post_now(self, correlation_id: int, chunks: list[Chunk], waiter: PendingCall) -> None:
        """Send a request of a re-authentication itself, which waits for nothing; see `post`."""
        if self.closed:
            raise NotSent("the connection just closed")
        size_bytes = sum(map(len, chunks))
        self._waiters[correlation_id] = waiter
        try:
            self._outgoing.send([size_bytes.to_bytes(4, "big"), *chunks], size_bytes + 4)
        except ConnectionLost as lost:
            # The peer never gets the end of this frame, so it cannot act on it.
            del self._waiters[correlation_id]
            self._lose(lost)
            raise NotSent(str(lost)) from lost
        if self._outgoing.unsent_bytes and not self._outgoing.draining:
            self._outgoing.draining = True
            self._emptied = trio.Event()
            self._nursery.start_soon(self._drain)

    async def post_unanswered(self, correlation_id: int, chunks: list[Chunk]) -> None:
        """Send one request that gets no answer, and wait until the system has all of it. Raises NotSent, or
        ConnectionFailed if the connection ends before.
        """
        renewal = self._renewal
        waiter = Waiter()
        self.post(correlation_id, chunks, waiter)
        if renewal is not None and renewal.under_way:
            await renewal.over.wait()
            if waiter.error is not None:
                raise waiter.error
        self._waiters.pop(correlation_id, None)
        if self._outgoing.draining:
            await self._emptied.wait()
            if self.closed:
                raise ConnectionFailed("the connection ended while a request was being sent")

    def close(self, reason: str) -> None:
        """Close; every pending call fails."""
        if not self.closed:
            self.closed = True
            self._connection.close()
            self._outgoing.clear()
            waiters, self._waiters = self._waiters, {}
            renewal, self._renewal = self._renewal, None
            if renewal is not None:
                for correlation_id, _ in renewal.held:
                    if (held := waiters.pop(correlation_id, None)) is not None:
                        held.fail(NotSent(reason))
                renewal.over.set()
            for waiter in waiters.values():
                waiter.fail(ConnectionFailed(reason))

    async def _receive(self) -> None:
        read = self._reader.read
        while not self.closed:
            for frame in await read():
                waiter = self._waiters.pop(int.from_bytes(frame[:4], "big", signed=True), None)
                if waiter is None or len(frame) < 4:
                    raise MalformedMessage("an answer with an unknown correlation id")
                waiter.take(frame)

    def _fail_overdue(self) -> float:
        """Fail an overdue call, and return when to look again. The connection is closed, too: it may be half dead, and
        answers keep their order.
        """
        if not self._waiters:
            return math.inf
        correlation_id = min(self._waiters, key=lambda each: self._waiters[each].deadline)
        waiter = self._waiters[correlation_id]
        if waiter.deadline > trio.current_time():
            return waiter.deadline
        del self._waiters[correlation_id]
        error = waiter.overdue()
        self.close(str(error))
        waiter.fail(error)
        return math.inf

    async def _drain(self) -> None:
        try:
            await self._outgoing.drain()
        except ConnectionLost as lost:
            self._lose(lost)
        finally:
            self._emptied.set()

    def _lose(self, error: Exception) -> None:
        if not self.closed:
            self.refused_by_tls = self.refused_by_tls or isinstance(error, EndedByAlert)
            self.close(str(error))
            self._on_lost()


def _hint(error: FrameError) -> str:
    """The probable reason why the first response is not one of Kafka."""
    if error.is_http:
        return "the server answers in HTTP; use the port of a Kafka listener"
    if error.is_tls:
        return "the server speaks TLS on this port; use security.protocol=SSL or SASL_SSL"
    return f"{error}: that server does not speak the Kafka protocol, or not in plaintext"
