"""One incoming connection: requests in, answers out in the order of the requests.

The path of a request, top-down: `run` reads a burst, `_serve` waits for a turn, `_turn` hands over as many requests as
fit into it, `_hand_over` parses the header and calls the handler. If the handler returns steps, the `StepDriver` takes
them in further turns, and no other request of the connection begins meanwhile. Answers that are filled by the end of a
turn leave with one send; the `Flusher` sends those that are filled later. Knows the request header, no request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.framing import parse_request_header
from barnabas.protocol.sasl.session import Action
from barnabas.runtime.frames import FrameError, FrameReader
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.memory import Counted
from barnabas.runtime.request import Request
from barnabas.runtime.responses import ResponseLine
from barnabas.runtime.security import HANDSHAKE_SECONDS, Authentication, HandshakeFailed, ListenerSecurity
from barnabas.runtime.service import Service
from barnabas.runtime.step_driver import StepDriver
from barnabas.runtime.steps import RunningSteps
from barnabas.runtime.turns import BUDGET_SECONDS, TURN_SECONDS, Share, WorkPayer
from barnabas.runtime.world import Connection, ConnectionLost

log = logging.getLogger(__name__)

BURST_REQUESTS = 64
"""Requests after which a connection lets others have a turn. `BURST_BYTES` of frames count the same."""

BURST_BYTES = 1024 * 1024

FIRST_STEPS = 16
"""Steps that are taken in the turn in which a request begins."""

COUNTED_REQUEST_BYTES = 1024
"""Requests of a connection that together take less are not counted in the memory of the node: the connection itself
takes more."""

ACKS_0_API_KEY = b"\0\0"
"""The first bytes of a frame with a Produce, the one request that may want no answer."""


class ServerConnection:
    """The server's end of one connection."""

    def __init__(
        self,
        service: Service,
        connection: Connection,
        listener_name: str,
        connection_id: int,
        security: ListenerSecurity | None = None,
    ) -> None:
        self._service = service
        self._connection = connection
        self._security = security
        self._principal: Principal = ANONYMOUS
        self._authentication: Authentication | None = None
        """Under way, or of a session that may expire."""
        self.listener_name = listener_name
        self._connection_id = connection_id
        self._reader = FrameReader(connection, service.limits.socket_request_max_bytes, service.scratch)
        self._responses = ResponseLine(connection, service, self)
        self._counted_requests = Counted(service.memory.requests_changed)
        self.driver = StepDriver(service, self)
        """Takes the steps of this connection's requests."""
        self._steps: RunningSteps | None = None
        """The steps of the request under way. No other request begins before they are over."""
        self._handed_over = 0
        """Bytes handed over since others had a turn, as they count towards `BURST_BYTES`."""
        self._room: trio.Event | None = None
        """Set when the reader may go on."""
        self._received = 0.0
        """Arrival of the burst that is being served, on the stopwatch."""
        self._was_held_up = False
        """Others may have had turns since the burst arrived."""
        self._finishing = False
        self._muted_until_ms = 0
        """On the monotonic clock: until then no request begins, because of a quota."""
        self._unmuted: trio.Event | None = None
        """Set to end the wait of a muted connection."""
        self._still_held_back: Callable[[], int] | None = None
        """Asked when a mute ends."""
        self._unbegun_bytes = 0
        """Memory of requests that arrived and wait until the connection is not muted."""
        self.peer_host = connection.peer_host
        self.last_active_ms = service.monotonic.now_ms()
        """Last time that the peer sent something or took some of its answers."""
        self.closed = False
        self.ended = False
        """The peer closed its side while requests waited for their turn."""
        self._client_principal: Principal = ANONYMOUS
        self.share = Share(service.turns.client(ANONYMOUS, connection.peer_host))

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end."""
        return self._connection.local_address

    @property
    def request_bytes(self) -> int:
        """Memory of requests that are not answered, and of the one that is still arriving."""
        return self._responses.request_bytes + self._reader.held_bytes + self._unbegun_bytes

    @property
    def answer_bytes(self) -> int:
        """Memory of answers that have not left."""
        return self._responses.counted_bytes

    # -- the path of a request

    async def run(self, nursery: trio.Nursery) -> None:
        """Serve until either side closes. `nursery` runs the wait for a peer that reads slowly."""
        self._responses.nursery = nursery
        memory = self._service.memory
        try:
            if self._security is not None:
                await self._secure(self._security)
            while not self.closed:
                if self._muted_until_ms:
                    await self._stay_muted([])
                    continue
                is_full = memory.request_bytes >= memory.most_request_bytes
                if is_full and not self.share.is_node and not self._reader.held_bytes:
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
            self.lose(lost)
        except FrameError as error:
            is_tls = error.is_tls and self._security is None
            self.abort("the peer speaks TLS, and this is a port without it" if is_tls else str(error))
        except HandshakeFailed as error:
            self._refuse(str(error))
        finally:
            self.close()

    async def _secure(self, security: ListenerSecurity) -> None:
        """Go on over the connection that the handshake yields. Raises HandshakeFailed."""
        with trio.move_on_after(HANDSHAKE_SECONDS):
            secured = await security.secure(self._connection)
            self._principal = secured.principal
            self._connection = secured.connection
            self._reader.connection = secured.connection
            self._responses.connection_is(secured.connection)
            if secured.charge_to is not None:
                secured.charge_to(WorkPayer(self._service.turns, self.share))
            if secured.authentication is not None:
                self._authentication = secured.authentication
                self._reader.max_frame_bytes = secured.authentication.max_frame_bytes
            return
        raise HandshakeFailed(f"the TLS handshake took longer than {HANDSHAKE_SECONDS} s")

    async def _serve(self, frames: list[bytearray]) -> None:
        """Hand over a burst, turn by turn. Requests that have not begun when the connection closes are dropped."""
        turns = self._service.turns
        position = 0
        while position < len(frames) and not self._finishing and not self.closed:
            if self._muted_until_ms:
                await self._stay_muted(frames[position:])
                continue
            if turns.is_over(self.share):
                if self._principal is not self._client_principal:
                    self._client_principal = self._principal
                    self.share.client = turns.client(self._principal, self.peer_host)
                await turns.wait(self.share)
                if self.closed:
                    return
                self._was_held_up = True
            if self._was_held_up and not self.ended and self._connection.has_ended():
                self.ended = True
            if self.ended:
                # The client may have returned over another connection, and what it gave up must not overtake that. A
                # producer with acks=0 waits for no answer, and what it sent before it closed counts.
                frames = [frame for frame in frames[position:] if frame[:2] == ACKS_0_API_KEY]
                position = 0
                if not frames:
                    return
            position += self._turn(frames, position)
            if self._steps is not None:
                await self.driver.take_all(self._steps)
                self._steps = None
                self._was_held_up = True
            if self._responses.is_full:
                await self._wait_for_room()
            elif self._handed_over >= BURST_BYTES or position < len(frames):
                await trio.lowlevel.checkpoint()
                self._handed_over = 0
                self._was_held_up = True

    def _turn(self, frames: list[bytearray], position: int) -> int:
        """One turn: hand over frames from `position` until all are handed over, the turn is over, or answers must leave
        first. Returns how many were handed over."""
        service = self._service
        stopwatch = service.stopwatch
        began = before = stopwatch() if self._was_held_up else self._received
        self._was_held_up = False
        taken, cost, most = 0, 0, len(frames) - position
        service.flusher.begin_turn(self._responses)
        try:
            for frame in frames[position:] if position else frames:
                taken += 1
                cost += max(len(frame), BURST_BYTES // BURST_REQUESTS)
                self._hand_over(frame)
                now = stopwatch()
                if now - before > BUDGET_SECONDS:
                    service.overran(int.from_bytes(frame[:2], "big"), now - before)
                before = now
                if self._steps is not None:
                    before = self.driver.take_some(self._steps, FIRST_STEPS, began)
                    if self._steps.is_over:
                        self._steps = None
                if taken == most:
                    break
                if (
                    self._steps is not None
                    or cost >= BURST_BYTES
                    or before - began > TURN_SECONDS
                    or self.closed
                    or self._muted_until_ms
                    or self._responses.is_full
                ):
                    break
        finally:
            self.end_turn(began, before)
        self._handed_over += cost
        return taken

    def _hand_over(self, frame: bytearray) -> None:
        if self._authentication is not None and self._authenticates(self._authentication, frame):
            return
        view = memoryview(frame)
        try:
            header, position = parse_request_header(view)
        except MalformedMessage as error:
            self.abort(f"malformed request header: {error}")
            return
        slot = self._responses.add(header.request_api_key, len(frame))
        request = Request(
            header.request_api_key,
            header.request_api_version,
            header.correlation_id,
            header.client_id,
            view[position:],
            self.peer_host,
            self.listener_name,
            self._connection_id,
            self.last_active_ms,
            self._received,
            self._principal,
        )
        try:
            steps = self._service.handle(request, slot)
        except Exception:
            # A mistake of ours: the client must take the outcome as unknown, which it is.
            log.exception("handling API key %d from %s failed", request.api_key, self.peer_host)
            self.close()
        else:
            if steps is not None:
                self._steps = RunningSteps(steps, request.api_key)

    def _authenticates(self, authentication: Authentication, frame: bytearray) -> bool:
        """The frame is no request for a handler."""
        try:
            reaction = authentication.receive(frame)
        except Exception:
            # A mistake of ours: the peer is not authenticated.
            log.exception("authenticating %s failed", self.peer_host)
            self.close()
            return True
        match reaction.action:
            case Action.PASS:
                return False
            case Action.CLOSE:
                self.abort(reaction.reason)
            case Action.FAIL:
                slot = self._responses.add(int.from_bytes(frame[:2], "big"), len(frame))
                assert self._responses.nursery is not None
                self._responses.nursery.start_soon(authentication.refuse, slot, reaction)
                self._finishing = True
            case Action.ANSWER:
                assert reaction.answer is not None
                self._responses.add(int.from_bytes(frame[:2], "big"), len(frame)).fill(reaction.answer)
                if reaction.authenticated is not None:
                    self._principal = authentication.principal
                    self._reader.max_frame_bytes = self._service.limits.socket_request_max_bytes
                    self._authentication = authentication if authentication.goes_on else None
        return True

    def begin_turn(self) -> None:
        self._service.flusher.begin_turn(self._responses)

    def end_turn(self, began: float, ended: float) -> None:
        """Send what was answered in the turn, and charge its time to this connection."""
        self._service.flusher.end_turn(self._responses)
        if self._responses.request_bytes >= COUNTED_REQUEST_BYTES or self._counted_requests.size_bytes:
            self._count_requests()
        self._service.turns.charge(self.share, began, ended)

    async def _wait_for_room(self) -> None:
        while self._must_wait() and not self.closed:
            self._room = trio.Event()
            await self._room.wait()
            self._room = None
            self._handed_over = 0
            self._was_held_up = True

    # -- limits and ends

    def mute(self, throttle_ms: int, still_held_back: Callable[[], int] | None = None) -> None:
        """Begin no other request for this long. The longest of several mutes counts. `still_held_back` is asked at its
        end: for how much longer, in ms."""
        if throttle_ms > 0:
            self._muted_until_ms = max(self._muted_until_ms, self._service.monotonic.now_ms() + throttle_ms)
            self._still_held_back = still_held_back or self._still_held_back

    async def _stay_muted(self, waiting: Sequence[bytearray]) -> None:
        """Return when the connection is not muted any longer, or is closed. `waiting`: requests that arrived."""
        self._unbegun_bytes = sum(map(len, waiting))
        self._count_requests()
        while not self.closed and (left_ms := self._muted_ms()) > 0:
            self._unmuted = trio.Event()
            with trio.move_on_after(left_ms / 1000):
                await self._unmuted.wait()
        self._unmuted = self._still_held_back = None
        self._muted_until_ms = self._unbegun_bytes = 0
        self._count_requests()
        self._was_held_up = True

    def _muted_ms(self) -> int:
        """The time that is left of a mute."""
        left_ms = self._muted_until_ms - self._service.monotonic.now_ms()
        return left_ms if left_ms > 0 or self._still_held_back is None else self._still_held_back()

    def request_grew(self) -> None:
        """A request under way takes more memory."""
        self._count_requests()
        self._service.memory.make_room_for_growth()

    def answers_left(self) -> None:
        """Answers were sent."""
        if self._counted_requests.size_bytes:
            self._count_requests()
        if self._finishing or self._room is not None:
            self.look_for_room()

    def answers_taken(self) -> None:
        """The peer took some of its answers."""
        self.last_active_ms = self._service.monotonic.now_ms()
        self.look_for_room()

    def is_idle_since(self, deadline_ms: int) -> bool:
        """The peer did nothing after `deadline_ms`, and no request of it is being worked on."""
        responses = self._responses
        return self.last_active_ms < deadline_ms and not (responses.is_worked_on and not responses.is_full_of_answers)

    def look_for_room(self) -> None:
        """Go on reading if nothing prevents it any longer; close a finished connection that owes nothing."""
        if self._finishing and self._responses.is_empty:
            self.close()
        elif self._room is not None and not self._must_wait():
            self._room.set()

    def finish(self) -> None:
        """Take no further request; close when those under way are answered."""
        self._finishing = True
        self.look_for_room()

    def abort(self, reason: str) -> None:
        """Close because of something the peer did."""
        if not self.closed:
            log.warning("closing the connection from %s: %s", self.peer_host, reason)
            self._responses.flush()  # earlier answers are still owed
            self.close()

    def _refuse(self, reason: str) -> None:
        """Close before the first request: a handshake failed."""
        if not self.closed:
            service = self._service
            line = service.refused.line_of(self.peer_host, reason, service.monotonic.now_ms())
            if line is not None:
                log.warning("%s", line)
            self.close()

    def close(self) -> None:
        """Close at once; every slot then reports `connection_closed`."""
        if not self.closed:
            self.closed = True
            self._connection.close()
            self._responses.clear()
            self._reader.forget()
            self._unbegun_bytes = 0
            self._count_requests()
            if self._unmuted is not None:
                self._unmuted.set()
            if self._room is not None:
                self._room.set()

    def lose(self, lost: ConnectionLost) -> None:
        """The connection broke."""
        if not self.closed:
            log.debug("connection %d from %s lost: %s", self._connection_id, self.peer_host, lost)
            self.close()

    def _must_wait(self) -> bool:
        """Nothing more may be read from the peer for now."""
        return self._responses.is_full or (self._service.memory.is_full and not self.share.is_node)

    def _count_requests(self) -> None:
        self._counted_requests.set(self.request_bytes)
