"""The answers that one connection owes its peer, in the order of the requests.

A slot may be filled at any time. Answers leave when all before them have left; until then, and while the peer does not
take them, they hold memory of the node.
"""

from __future__ import annotations

from collections import deque

import trio

from barnabas.runtime.memory import Counted
from barnabas.runtime.outgoing import Outgoing
from barnabas.runtime.request import Timed
from barnabas.runtime.response_slot import Owner, ResponseSlot
from barnabas.runtime.service import Service
from barnabas.runtime.world import Chunk, Connection, ConnectionLost, FileRegion

COUNTED_BYTES = 64 * 1024
"""An answer of this size is counted as memory at once; smaller ones when they cannot leave."""


class ResponseLine:
    """The slots of one connection, and the answers that its peer has not taken."""

    def __init__(self, connection: Connection, service: Service, owner: Owner) -> None:
        self._outgoing = Outgoing(connection)
        self._service = service
        self._limits = service.limits
        self._owner = owner
        self.nursery: trio.Nursery | None = None
        """Runs the wait for a peer that reads slowly."""
        self._flush_is_due = False
        """On the flusher's list."""
        self._slots: deque[ResponseSlot] = deque()
        """In the order of the requests. A done slot stays here only behind one that is not done."""
        self.request_bytes = 0
        """Memory of the requests in line: their frames, and what `AnswerSlot.grow` added."""
        self._held_bytes = 0
        """Bytes of answers that wait for one before them."""
        self._counted = Counted(service.memory.answers_changed)

    def connection_is(self, connection: Connection) -> None:
        """Send over this connection, before any answer was sent."""
        self._outgoing = Outgoing(connection)

    @property
    def counted_bytes(self) -> int:
        """The memory that these answers take, as it is counted in the budget of the node."""
        return self._counted.size_bytes

    @property
    def is_empty(self) -> bool:
        """Every request was answered, and the system has taken all answers."""
        return not self._slots and not self._outgoing.unsent_bytes

    @property
    def is_full(self) -> bool:
        """No further request may begin."""
        limits = self._limits
        return (
            len(self._slots) >= limits.max_pending_requests
            or self.request_bytes > limits.max_pending_request_bytes
            or self._outgoing.unsent_bytes + self._held_bytes > limits.max_unsent_bytes
        )

    @property
    def is_full_of_answers(self) -> bool:
        """The peer does not take its answers."""
        return self._outgoing.unsent_bytes + self._held_bytes > self._limits.max_unsent_bytes

    @property
    def is_worked_on(self) -> bool:
        """The first request in line has no answer yet."""
        return bool(self._slots) and not self._slots[0].done

    def add(self, api_key: int, request_bytes: int) -> ResponseSlot:
        """The slot of a new request."""
        slot = ResponseSlot(self, self._owner, api_key, request_bytes)
        self._slots.append(slot)
        self.request_bytes += request_bytes
        return slot

    def filled(self, slot: ResponseSlot) -> None:
        """A slot of the line was filled or dropped."""
        if self._owner.closed:
            return
        self._held_bytes += slot.size_bytes
        if slot.size_bytes >= COUNTED_BYTES:
            self._count()
            if self._owner.closed:
                return
        if not self._flush_is_due and self._service.flusher.in_turn is not self:
            self._flush_is_due = True
            self._service.flusher.add(self)

    def request_grew(self, size_bytes: int) -> None:
        """The request of a slot in line takes more memory."""
        if not self._owner.closed:
            self.request_bytes += size_bytes
            self._owner.request_grew()

    def flush(self) -> None:
        """Send the answers at the head of the line."""
        self._flush_is_due = False
        owner, outgoing = self._owner, self._outgoing
        if owner.closed:
            return
        if not (self._slots and self._slots[0].done) and not outgoing.unsent_bytes and not self._counted.size_bytes:
            return
        try:
            self._send()
        except ConnectionLost as lost:
            owner.lose(lost)
            return
        if outgoing.unsent_bytes and not outgoing.draining:
            assert self.nursery is not None
            outgoing.draining = True
            self.nursery.start_soon(self._drain)
        if outgoing.unsent_bytes or self._counted.size_bytes:
            self._count()
        owner.answers_left()

    def _send(self) -> None:
        """Send with one call, and report the times of the requests. Raises ConnectionLost."""
        stopwatch = self._service.stopwatch
        slots = self._slots
        chunks: list[Chunk] = []
        size_bytes = 0
        leaving: list[tuple[Timed, int]] = []
        while slots and slots[0].done:
            slot = slots.popleft()
            if slot.timed is not None:
                leaving.append((slot.timed, slot.size_bytes))
                slot.timed = None  # the two refer to each other, and would stay until the next garbage collection
            self.request_bytes -= slot.request_bytes
            if slot.chunks:
                self._held_bytes -= slot.size_bytes
                size_bytes += slot.size_bytes + 4
                chunks.append(slot.size_bytes.to_bytes(4, "big"))
                chunks += slot.chunks
                slot.chunks = ()
        began = stopwatch() if leaving else 0.0
        if chunks:
            self._outgoing.send(chunks, size_bytes)
        if leaving:
            ended = stopwatch()
            for timed, answer_bytes in leaving:
                timed.sent(answer_bytes, began, ended)

    async def _drain(self) -> None:
        """Send until the system has all."""
        try:
            await self._outgoing.drain(self._taken)
        except ConnectionLost as lost:
            self._owner.lose(lost)
        else:
            self._owner.answers_left()

    def _taken(self) -> None:
        self._count()
        self._owner.answers_taken()

    def _count(self) -> None:
        """Count the memory of answers that have not left. It may close this connection, or another one."""
        held = self._outgoing.memory_bytes
        if self._held_bytes:
            for slot in self._slots:
                for chunk in slot.chunks:
                    if not isinstance(chunk, FileRegion):
                        held += len(chunk)
        self._counted.set(held)

    def clear(self) -> None:
        """Forget all answers: the connection is closed."""
        for slot in self._slots:
            slot.chunks = ()
            slot.timed = None
        self._slots.clear()
        self._outgoing.clear()
        self.request_bytes = self._held_bytes = 0
        self._counted.set(0)
