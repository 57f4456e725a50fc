"""One incoming connection: requests in, answers out in the order of the requests.

All requests of a read burst are handed over synchronously; each gets a slot, and whatever slots at the head
of the line are filled when the burst ends leave with one send. A slot filled later, by a callback in some
other task, is sent by the `Flusher`. Knows the request header, no request.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import trio

from protocol.errors import MalformedMessage
from protocol.framing import parse_request_header
from runtime.frames import FrameError, FrameReader
from runtime.outgoing import Outgoing
from runtime.world import Chunk, Clock, Connection, ConnectionLost, stopped

if TYPE_CHECKING:
    from settings.node import NodeSettings

log = logging.getLogger(__name__)

BURST_REQUESTS = 64
"""Requests after which a connection lets the others have a turn; `BURST_BYTES` of frames count the same."""

BURST_BYTES = 1024 * 1024

PATIENCE = 4
"""So many turns of all tasks may pass before what was left for afterwards is done, if there are requests in each."""

NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What peers may ask of a server; the first group under Kafka's own key names."""

    socket_request_max_bytes: int = 104_857_600
    connections_max_idle_ms: int = 600_000
    max_connections: int = NO_LIMIT
    """At so many connections no further one is accepted until one ends."""
    max_connections_per_ip: int = NO_LIMIT
    """Connections above this are closed at once."""
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = NO_LIMIT
    """New connections per second; more wait in the backlog."""

    max_pending_requests: int = 64
    """Requests of one connection that wait for their answer; above, it is not read."""
    max_pending_request_bytes: int = 64 * 1024 * 1024
    """Bytes of those; above, the connection is not read (one request of any allowed size always is)."""
    max_unsent_bytes: int = 16 * 1024 * 1024
    """Answers of one connection that the peer has not taken; above, it is not read."""

    @classmethod
    def of(cls, settings: NodeSettings) -> ServerLimits:
        return cls(
            socket_request_max_bytes=settings.socket_request_max_bytes,
            connections_max_idle_ms=settings.connections_max_idle_ms,
            max_connections=settings.max_connections,
            max_connections_per_ip=settings.max_connections_per_ip,
            max_connections_per_ip_overrides=settings.max_connections_per_ip_overrides,
            max_connection_creation_rate=settings.max_connection_creation_rate,
        )


@dataclass(slots=True)
class Request:
    """One request as it came."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    """Writable, and this request's own: it may be kept and changed."""
    peer_host: str
    listener_name: str
    connection_id: int
    """Unique within the server."""
    received_ms: int
    """On the monotonic clock."""
    received: float = 0.0
    """On the stopwatch."""


class Timed(Protocol):
    """Who wants to know when an answer left."""

    throttled_ms: float
    """How long its connection is held back for it."""

    def sent(self, size_bytes: int, began: float, ended: float) -> None:
        """It went to the socket with others; moments on the stopwatch."""


class AnswerSlot(Protocol):
    """Where one answer goes. Exactly one of its verbs is called, once, at any time."""

    timed: Timed | None
    """To be told when the answer leaves."""

    @property
    def connection_closed(self) -> bool:
        """Nobody waits for this answer any more; filling the slot does nothing."""
        ...

    def fill(self, chunks: Sequence[Chunk]) -> None:
        """Answer with `chunks`: response header and body, without the size."""

    def drop(self) -> None:
        """There is no answer to this request (acks=0)."""

    def abort(self, reason: str) -> None:
        """Close the connection instead of answering."""


class ResponseSlot:
    """An `AnswerSlot` that is a place in its connection's line."""

    __slots__ = ("_connection", "chunks", "done", "request_bytes", "size_bytes", "timed")

    def __init__(self, connection: ServerConnection, request_bytes: int) -> None:
        self._connection = connection
        self.request_bytes = request_bytes
        self.chunks: Sequence[Chunk] = ()
        self.size_bytes = 0
        self.done = False
        self.timed: Timed | None = None

    @property
    def connection_closed(self) -> bool:
        return self._connection.closed

    def fill(self, chunks: Sequence[Chunk]) -> None:
        assert not self.done, "a response slot was filled twice"
        self.done = True
        size = 0
        for chunk in chunks:
            size += len(chunk)
        self.chunks = chunks
        self.size_bytes = size
        self._connection.slot_done(self)

    def drop(self) -> None:
        assert not self.done, "a response slot was filled twice"
        self.done = True
        self._connection.slot_done(self)

    def mute(self, duration_ms: float) -> None:
        """Read nothing more from this connection for so long (a quota was exceeded, KIP-219). May be called besides
        one of the others, but only while the request is being handed over."""
        if self.timed is not None:
            self.timed.throttled_ms = duration_ms
        self._connection.mute_ms = max(self._connection.mute_ms, duration_ms)

    def abort(self, reason: str) -> None:
        self.done = True
        self._connection.abort(reason)


Handle = Callable[[Request, ResponseSlot], None]


class Flusher:
    """Sends the answers that were filled outside their own connection's burst.

    Such a fill only puts its connection on a list. If it happens inside the burst of another connection (a
    fetch that moves a high watermark and completes twenty produces), the list is flushed when that burst
    ends, at no cost in wake-ups. Otherwise (a timer) the flushing task is woken: it runs after all tasks that
    are running now, so one wake-up and one send per connection serve everything filled in the same stretch.

    What is to be done once for all that these tasks do, whatever it fills, can be left to it, too (`afterwards`).
    """

    def __init__(self) -> None:
        self.holds = False
        """Answers are being given right now by somebody who flushes when he is through."""
        self.bursting: ServerConnection | None = None
        """The connection whose requests are being handed over right now."""
        self._waiting: list[ServerConnection] = []
        self._left: list[Callable[[], None]] = []
        self.bursts = 0
        """How many connections have handed over what came, ever."""
        self._bursts_before = 0
        """As it was when something was left to be done."""
        self._parking = trio.lowlevel.ParkingLot()
        self._woken = False

    def add(self, connection: ServerConnection) -> None:
        self._waiting.append(connection)
        if not self.holds:
            self._wake()

    def afterwards(self, work: Callable[[], None]) -> None:
        """Do `work` once all tasks had their turn that are running now. It must not raise."""
        self._left.append(work)
        self._bursts_before = self.bursts
        self._wake()

    def flush(self) -> None:
        """Send all that is on the list."""
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.flush()

    async def run(self) -> None:
        """Flush whenever woken, for ever."""
        while True:
            self._woken = False
            if not self._waiting and not self._left:
                await self._parking.park()
            if self._left:
                await self._let_others_go_first()
                self._catch_up()
            self.flush()

    async def _let_others_go_first(self) -> None:
        """While more requests come than one at a time, what is left waits for those that are here already."""
        for _ in range(PATIENCE):
            if self.bursts == self._bursts_before:
                return
            self._bursts_before = self.bursts
            self.flush()
            await trio.lowlevel.checkpoint()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._parking.unpark()

    def _catch_up(self) -> None:
        left, self._left = self._left, []
        self.holds = True
        try:
            for work in left:
                work()
        finally:
            self.holds = False


@dataclass(frozen=True, slots=True)
class Service:
    """What all connections of a server share."""

    handle: Handle
    limits: ServerLimits
    monotonic: Clock
    flusher: Flusher
    scratch: bytearray
    stopwatch: Callable[[], float] = stopped


class ServerConnection:
    """The server's end of one connection."""

    def __init__(self, service: Service, connection: Connection, listener_name: str, connection_id: int) -> None:
        self._service = service
        self._connection = connection
        self._listener_name = listener_name
        self._connection_id = connection_id
        self._outgoing = Outgoing(connection)
        self._nursery: trio.Nursery | None = None
        self._slots: deque[ResponseSlot] = deque()
        """In the order of the requests; done ones stand here only behind one that is not."""
        self._pending_bytes = 0
        self._held_bytes = 0
        """Answers in `_slots` that wait for one before them."""
        self._dirty = False
        """On the flusher's list."""
        self._room: trio.Event | None = None
        """Set for the reader when it may read on."""
        self._finishing = False
        self.mute_ms = 0.0
        """How long the reader is to pause after this burst."""
        self.peer_host = connection.peer_host
        self.last_active_ms = service.monotonic.now_ms()
        self._received = 0.0
        """When the burst came that is being handed over, on the stopwatch."""
        self.closed = False

    async def run(self, nursery: trio.Nursery) -> None:
        """Serve until either side closes; `nursery` runs the flush wait when the peer reads slowly."""
        self._nursery = nursery
        limits = self._service.limits
        reader = FrameReader(self._connection, limits.socket_request_max_bytes, self._service.scratch)
        spent = 0
        try:
            while not self.closed:
                frames = await reader.read()
                self.last_active_ms = self._service.monotonic.now_ms()
                self._received = self._service.stopwatch()
                position = 0
                while position < len(frames) and not self._finishing:
                    taken, cost = self._burst(frames, position)
                    position += taken
                    spent += cost
                    if self.mute_ms > 0:
                        await trio.sleep(self.mute_ms / 1000)
                        self.mute_ms = 0.0
                    if self._is_full():
                        await self._wait_for_room()
                        spent = 0
                    elif spent >= BURST_BYTES:
                        await trio.lowlevel.checkpoint()
                        spent = 0
        except ConnectionLost as lost:
            log.debug("connection %d from %s ended: %s", self._connection_id, self.peer_host, lost)
        except FrameError as error:
            self.abort(str(error))
        finally:
            self.close()

    def slot_done(self, slot: ResponseSlot) -> None:
        """Take notice that a slot needs no more waiting for."""
        if self.closed:
            return
        self._held_bytes += slot.size_bytes
        if not self._dirty and self._service.flusher.bursting is not self:
            self._dirty = True
            self._service.flusher.add(self)

    def flush(self) -> None:
        """Send the answers at the head of the line."""
        self._dirty = False
        if self.closed:
            return
        slots = self._slots
        chunks: list[Chunk] = []
        size_bytes = 0
        leaving: list[tuple[Timed, ResponseSlot]] = []
        while slots and slots[0].done:
            slot = slots.popleft()
            if slot.timed is not None:
                leaving.append((slot.timed, slot))
            self._pending_bytes -= slot.request_bytes
            if slot.chunks:
                self._held_bytes -= slot.size_bytes
                size_bytes += slot.size_bytes + 4
                chunks.append(slot.size_bytes.to_bytes(4, "big"))
                chunks += slot.chunks
        began = self._service.stopwatch() if leaving else 0.0
        if chunks:
            try:
                self._outgoing.send(chunks, size_bytes)
            except ConnectionLost as lost:
                self._lose(lost)
                return
            if self._outgoing.unsent_bytes and not self._outgoing.draining:
                assert self._nursery is not None
                self._outgoing.draining = True
                self._nursery.start_soon(self._drain)
        if leaving:
            ended = self._service.stopwatch()
            for timed, slot in leaving:
                timed.sent(slot.size_bytes, began, ended)
        self._sent()

    def finish(self) -> None:
        """Take no further request; close when those under way are answered."""
        self._finishing = True
        self._sent()

    def abort(self, reason: str) -> None:
        """Close because of something the peer did."""
        if not self.closed:
            log.warning("closing the connection from %s: %s", self.peer_host, reason)
            self.flush()  # what was answered before it is still owed
            self.close()

    def close(self) -> None:
        """Close at once; every slot then tells `connection_closed`."""
        if not self.closed:
            self.closed = True
            self._connection.close()
            self._slots.clear()
            self._outgoing.clear()
            if self._room is not None:
                self._room.set()

    def is_idle_since(self, deadline_ms: int) -> bool:
        """Nothing came after `deadline_ms` and nothing is owed."""
        return self.last_active_ms < deadline_ms and not self._slots and not self._outgoing.unsent_bytes

    def _burst(self, frames: list[bytearray], position: int) -> tuple[int, int]:
        """Hand over frames from `position` until all are, the turn is over, or answers must leave first.

        Gives how many were handed over, and what that counts towards `BURST_BYTES`.
        """
        flusher = self._service.flusher
        flusher.bursting, flusher.holds = self, True
        flusher.bursts += 1
        taken, cost = 0, 0
        try:
            for frame in frames[position:] if position else frames:
                taken += 1
                cost += max(len(frame), BURST_BYTES // BURST_REQUESTS)
                self._hand_over(frame)
                if cost >= BURST_BYTES or self.closed or self.mute_ms > 0 or self._is_full():
                    break
        finally:
            flusher.bursting, flusher.holds = None, False
        self.flush()
        flusher.flush()
        return taken, cost

    def _hand_over(self, frame: bytearray) -> None:
        view = memoryview(frame)
        try:
            header, position = parse_request_header(view)
        except MalformedMessage as error:
            self.abort(f"malformed request header: {error}")
            return
        slot = ResponseSlot(self, len(frame))
        self._slots.append(slot)
        self._pending_bytes += len(frame)
        request = Request(
            header.request_api_key,
            header.request_api_version,
            header.correlation_id,
            header.client_id,
            view[position:],
            self.peer_host,
            self._listener_name,
            self._connection_id,
            self.last_active_ms,
            self._received,
        )
        try:
            self._service.handle(request, slot)
        except Exception:
            # A mistake of ours: the client must take the outcome as unknown, which it is.
            log.exception("handling API key %d from %s failed", request.api_key, self.peer_host)
            self.close()

    def _is_full(self) -> bool:
        limits = self._service.limits
        return (
            len(self._slots) >= limits.max_pending_requests
            or self._pending_bytes > limits.max_pending_request_bytes
            or self._outgoing.unsent_bytes + self._held_bytes > limits.max_unsent_bytes
        )

    async def _wait_for_room(self) -> None:
        while self._is_full() and not self.closed:
            self._room = trio.Event()
            await self._room.wait()
            self._room = None

    def _sent(self) -> None:
        if self._finishing and not self._slots and not self._outgoing.unsent_bytes:
            self.close()
        elif self._room is not None and not self._is_full():
            self._room.set()

    async def _drain(self) -> None:
        try:
            await self._outgoing.drain()
        except ConnectionLost as lost:
            self._lose(lost)
        else:
            self._sent()

    def _lose(self, lost: ConnectionLost) -> None:
        if not self.closed:
            log.debug("connection %d from %s lost: %s", self._connection_id, self.peer_host, lost)
            self.close()
