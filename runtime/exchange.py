"""One incoming connection: requests in, answers out in the order of the requests.

All requests of a read burst are handed over synchronously; each gets a slot, and whatever slots at the head
of the line are filled when the burst ends leave with one send. A slot filled later, by a callback in some
other task, is sent by the `Flusher`. Knows the request header, no request.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import trio

from protocol.errors import MalformedMessage
from protocol.framing import parse_request_header
from runtime.frames import FrameError, FrameReader
from runtime.memory import MemoryBudget
from runtime.outgoing import Outgoing
from runtime.turns import BUDGET_SECONDS, ROUND_SECONDS, TURN_SECONDS, Share, Turns
from runtime.world import Chunk, Clock, Connection, ConnectionLost, FileRegion, stopped

if TYPE_CHECKING:
    from settings.node import NodeSettings

log = logging.getLogger(__name__)

BURST_REQUESTS = 64
"""Requests after which a connection lets the others have a turn; `BURST_BYTES` of frames count the same."""

BURST_BYTES = 1024 * 1024

STEPS_IN_A_TURN = 64
"""Steps of an expensive request after which others have a turn, however quick they were."""

COUNTED_BYTES = 64 * 1024
"""Answers of this size count at once towards the memory of the node; smaller ones when they cannot leave."""

PATIENCE = 4
"""So many turns of all tasks may pass before what was left for afterwards is done, if there are requests in each."""

NO_LIMIT = 2**31 - 1

ACKS_0_API_KEY = b"\0\0"
"""How a frame with a Produce begins: the one request that may want no answer."""

MOST_DEFAULT_MEMORY_BYTES = 1 << 30
"""A node's memory limit, if none is set, is a quarter of the machine's memory, but not more than this."""


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
    memory_limit_bytes: int = 1 << 30
    """What the node may take; see `runtime.memory` for the parts of it."""
    queued_max_request_bytes: int = -1
    """Requests of all connections that wait for their answers; -1: a part of the memory limit."""

    @classmethod
    def of(cls, settings: NodeSettings, machine_memory_bytes: int) -> ServerLimits:
        return cls(
            socket_request_max_bytes=settings.socket_request_max_bytes,
            connections_max_idle_ms=settings.connections_max_idle_ms,
            max_connections=settings.max_connections,
            max_connections_per_ip=settings.max_connections_per_ip,
            max_connections_per_ip_overrides=settings.max_connections_per_ip_overrides,
            max_connection_creation_rate=settings.max_connection_creation_rate,
            memory_limit_bytes=settings.memory_limit_bytes or min(MOST_DEFAULT_MEMORY_BYTES, machine_memory_bytes // 4),
            queued_max_request_bytes=settings.queued_max_request_bytes,
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

    @property
    def connection_ended(self) -> bool:
        """The peer closed its side before this request began: it takes no answer."""
        ...

    def comes_from_node(self) -> None:
        """The peer is a broker or a controller of this cluster: it waits for no client."""


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

    def comes_from_node(self) -> None:
        self._connection.share.is_node = True


Steps = Generator[Callable[[], Any] | None, Any, None]
"""What remains of an expensive request. Each step is short; a step that yields work has it done away from the event
loop, and is sent the result."""

Handle = Callable[[Request, ResponseSlot], Steps | None]


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
    turns: Turns
    memory: MemoryBudget
    stopwatch: Callable[[], float] = stopped
    overran: Callable[[int, float], None] = lambda api_key, seconds: None
    """Called with an API key and seconds if a request, or a step of one, took longer than `BUDGET_SECONDS`."""


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
        self._spent = 0
        """What was handed over since others had a turn, counted towards `BURST_BYTES`."""
        self._room: trio.Event | None = None
        """Set for the reader when it may read on."""
        self._finishing = False
        self.mute_ms = 0.0
        """How long the reader is to pause after this burst."""
        self.peer_host = connection.peer_host
        self.last_active_ms = service.monotonic.now_ms()
        """When the peer last sent something or took some of its answers."""
        self._received = 0.0
        """When the burst came that is being handed over, on the stopwatch."""
        self.closed = False
        self.ended = False
        """The peer closed its side while requests of it waited for their turn."""
        self._was_held_up = False
        """Others may have been served between the arrival of what is read next and its turn."""
        self.share = Share()
        self._steps: Steps | None = None
        """The request that is under way in steps. No further one begins before it is through."""
        self._steps_api_key = 0
        self._reader = FrameReader(connection, service.limits.socket_request_max_bytes, service.scratch)
        self._counted_requests = 0
        self._counted_answers = 0

    @property
    def request_bytes(self) -> int:
        """Memory of requests that are not answered, and of the one that is still arriving."""
        return self._pending_bytes + self._reader.held_bytes

    @property
    def answer_bytes(self) -> int:
        """Memory of answers that have not left."""
        return self._counted_answers

    async def run(self, nursery: trio.Nursery) -> None:
        """Serve until either side closes; `nursery` runs the flush wait when the peer reads slowly."""
        self._nursery = nursery
        memory = self._service.memory
        try:
            while not self.closed:
                if memory.is_full and not self.share.is_node and not self._reader.held_bytes:
                    await self._wait_for_room()
                    continue
                frames = await self._reader.read()
                self.last_active_ms = self._service.monotonic.now_ms()
                self._received = self._service.stopwatch()
                if frames:
                    await self._serve(frames)
                else:
                    self._count_requests()
        except ConnectionLost as lost:
            log.debug("connection %d from %s ended: %s", self._connection_id, self.peer_host, lost)
        except FrameError as error:
            self.abort(str(error))
        finally:
            self.close()

    async def _serve(self, frames: list[bytearray]) -> None:
        """Hand over what came, turn by turn. What has not begun when the connection closes is dropped."""
        turns = self._service.turns
        position = 0
        while position < len(frames) and not self._finishing and not self.closed:
            if turns.spent >= ROUND_SECONDS:
                await turns.wait(self.share)
                if self.closed:
                    return
                self._was_held_up = True
            if self._was_held_up and not self.ended and self._connection.has_ended():
                self.ended = True
            if self.ended:
                # The client may have come back over another connection: what it gave up must not overtake that. A
                # producer with acks=0 waits for no answer, and what it sent before it closed counts.
                frames = [frame for frame in frames[position:] if frame[:2] == ACKS_0_API_KEY]
                position = 0
                if not frames:
                    return
            began = self._service.stopwatch() if self._was_held_up else self._received
            self._was_held_up = False
            taken, cost = self._burst(frames, position, began)
            position += taken
            self._spent += cost
            if self._steps is not None:
                await self._take_steps()
                self._was_held_up = True
            if self.mute_ms > 0:
                await trio.sleep(self.mute_ms / 1000)
                self.mute_ms = 0.0
                self._was_held_up = True
            if self._is_full():
                await self._wait_for_room()
            elif self._spent >= BURST_BYTES or position < len(frames):
                await trio.lowlevel.checkpoint()
                self._spent = 0
                self._was_held_up = True

    async def _take_steps(self) -> None:
        """Go on with the request that is under way in steps until it is through, in turns."""
        steps, turns = self._steps, self._service.turns
        assert steps is not None
        result: Any = None
        error: Exception | None = None
        try:
            while not self.closed:
                if turns.spent >= ROUND_SECONDS:
                    await turns.wait(self.share)
                else:
                    await trio.lowlevel.checkpoint()
                if self.closed:
                    return
                work, is_through = self._step(steps, result, error)
                if is_through:
                    return
                result, error = None, None
                if work is not None:
                    try:
                        result = await turns.work_aside(work)
                    except Exception as failed:  # whoever wanted the work is given its error
                        error = failed
        finally:
            self._steps = None
            steps.close()

    def _step(
        self, steps: Steps, result: Any, error: Exception | None
    ) -> tuple[Callable[[], Any] | None, bool]:
        """One turn of a request in steps: (work that is to be done aside, whether it is through)."""
        service = self._service
        began = before = service.stopwatch()
        self._begin_turn()
        try:
            for _ in range(STEPS_IN_A_TURN):
                work = steps.send(result) if error is None else steps.throw(error)
                result, error = None, None
                now = service.stopwatch()
                if now - before > BUDGET_SECONDS:
                    service.overran(self._steps_api_key, now - before)
                before = now
                if work is not None:
                    return work, False
                if now - began > TURN_SECONDS or self.closed:
                    return None, False
        except StopIteration:
            return None, True
        finally:
            self._end_turn(began, service.stopwatch())
        return None, False

    def slot_done(self, slot: ResponseSlot) -> None:
        """Take notice that a slot needs no more waiting for."""
        if self.closed:
            return
        self._held_bytes += slot.size_bytes
        if slot.size_bytes >= COUNTED_BYTES:
            self._count_answers()
            if self.closed:
                return
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
        leaving: list[tuple[Timed, int]] = []
        while slots and slots[0].done:
            slot = slots.popleft()
            if slot.timed is not None:
                leaving.append((slot.timed, slot.size_bytes))
                slot.timed = None  # the two refer to each other, and would stay until the collector comes by
            self._pending_bytes -= slot.request_bytes
            if slot.chunks:
                self._held_bytes -= slot.size_bytes
                size_bytes += slot.size_bytes + 4
                chunks.append(slot.size_bytes.to_bytes(4, "big"))
                chunks += slot.chunks
                slot.chunks = ()
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
            for timed, answer_bytes in leaving:
                timed.sent(answer_bytes, began, ended)
        if self._outgoing.unsent_bytes or self._counted_answers:
            self._count_answers()
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
            for slot in self._slots:
                slot.chunks = ()
                slot.timed = None
            self._slots.clear()
            self._outgoing.clear()
            self._reader.forget()
            self._pending_bytes = self._held_bytes = 0
            self._count_requests()
            self._count_answers()
            if self._room is not None:
                self._room.set()

    def is_idle_since(self, deadline_ms: int) -> bool:
        """The peer did nothing after `deadline_ms`, and no request of it is being worked on."""
        is_worked_on = self._slots and not self._slots[0].done and not self._is_full_of_answers()
        return self.last_active_ms < deadline_ms and not is_worked_on

    def look_for_room(self) -> None:
        """Requests of the node take less memory now."""
        self._sent()

    # -- what it holds

    def _count_requests(self) -> None:
        held = 0 if self.closed else self.request_bytes
        change, self._counted_requests = held - self._counted_requests, held
        if change:
            self._service.memory.requests_changed(change)

    def _count_answers(self) -> None:
        held = 0
        if not self.closed:
            held = self._outgoing.memory_bytes
            if self._held_bytes:
                for slot in self._slots:
                    for chunk in slot.chunks:
                        if not isinstance(chunk, FileRegion):
                            held += len(chunk)
        change, self._counted_answers = held - self._counted_answers, held
        if change:
            self._service.memory.answers_changed(change)

    # -- turns

    def _begin_turn(self) -> None:
        flusher = self._service.flusher
        flusher.bursting, flusher.holds = self, True
        flusher.bursts += 1

    def _end_turn(self, began: float, ended: float) -> None:
        flusher = self._service.flusher
        flusher.bursting, flusher.holds = None, False
        self.flush()
        flusher.flush()
        if self._pending_bytes or self._counted_requests:
            self._count_requests()
        self._service.turns.charge(self.share, began, ended)

    def _burst(self, frames: list[bytearray], position: int, began: float) -> tuple[int, int]:
        """Hand over frames from `position` until all are, the turn is over, or answers must leave first.

        Gives how many were handed over, and what that counts towards `BURST_BYTES`.
        """
        service = self._service
        stopwatch = service.stopwatch
        before = began
        taken, cost = 0, 0
        self._begin_turn()
        try:
            for frame in frames[position:] if position else frames:
                taken += 1
                cost += max(len(frame), BURST_BYTES // BURST_REQUESTS)
                self._hand_over(frame)
                now = stopwatch()
                if now - before > BUDGET_SECONDS:
                    service.overran(int.from_bytes(frame[:2], "big"), now - before)
                before = now
                if (
                    cost >= BURST_BYTES
                    or now - began > TURN_SECONDS
                    or self.closed
                    or self._steps is not None
                    or self.mute_ms > 0
                    or self._is_full()
                ):
                    break
        finally:
            self._end_turn(began, before)
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
            self._steps = self._service.handle(request, slot)
            self._steps_api_key = request.api_key
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

    def _is_full_of_answers(self) -> bool:
        """The peer does not take its answers, so that nothing more of it is worked on."""
        return self._outgoing.unsent_bytes + self._held_bytes > self._service.limits.max_unsent_bytes

    def _must_wait(self) -> bool:
        """Nothing more may be read from the peer for now."""
        return self._is_full() or (self._service.memory.is_full and not self.share.is_node)

    async def _wait_for_room(self) -> None:
        while self._must_wait() and not self.closed:
            self._room = trio.Event()
            await self._room.wait()
            self._room = None
            self._spent = 0
            self._was_held_up = True

    def _sent(self) -> None:
        if self._finishing and not self._slots and not self._outgoing.unsent_bytes:
            self.close()
        elif self._room is not None and not self._must_wait():
            self._room.set()

    async def _drain(self) -> None:
        try:
            await self._outgoing.drain(self._taken)
        except ConnectionLost as lost:
            self._lose(lost)
        else:
            self._sent()

    def _taken(self) -> None:
        """The peer took some of its answers."""
        self.last_active_ms = self._service.monotonic.now_ms()
        self._count_answers()
        self._sent()

    def _lose(self, lost: ConnectionLost) -> None:
        if not self.closed:
            log.debug("connection %d from %s lost: %s", self._connection_id, self.peer_host, lost)
            self.close()
