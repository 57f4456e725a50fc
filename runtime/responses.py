"""The answers that one connection owes its peer, in the order of the requests.

A slot may be filled at any time. Answers leave when all before them have left; until then, and while the peer does not
take them, they hold memory of the node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from runtime.memory import Counted, MemoryBudget
from runtime.outgoing import Outgoing
from runtime.request import Timed
from runtime.server_limits import ServerLimits
from runtime.steps import RunningSteps, Steps
from runtime.turns import Share
from runtime.world import Chunk, Connection, FileRegion

COUNTED_BYTES = 64 * 1024
"""An answer of this size is counted as memory at once; smaller ones when they cannot leave."""


class SlotOwner(Protocol):
    """The connection of a slot."""

    closed: bool
    ended: bool
    share: Share

    def slot_done(self, slot: ResponseSlot) -> None:
        """The slot was filled or dropped."""

    def request_grew(self, size_bytes: int) -> None:
        """The request of a slot takes more memory."""

    def abort(self, reason: str) -> None: ...

    async def take_steps(self, steps: RunningSteps) -> None: ...


class ResponseSlot:
    """An `AnswerSlot` that is a place in its connection's line."""

    __slots__ = ("_api_key", "_connection", "chunks", "done", "request_bytes", "size_bytes", "timed")

    def __init__(self, connection: SlotOwner, api_key: int, request_bytes: int) -> None:
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
        self._connection.slot_done(self)

    def drop(self) -> None:
        assert not self.done, "a response slot was filled twice"
        self.done = True
        self._connection.slot_done(self)

    def abort(self, reason: str) -> None:
        self.done = True
        self._connection.abort(reason)

    def grow(self, size_bytes: int) -> None:
        if not self.done:
            self.request_bytes += size_bytes
            self._connection.request_grew(size_bytes)

    def comes_from_node(self) -> None:
        self._connection.share.is_node = True

    async def take_steps(self, steps: Steps) -> None:
        await self._connection.take_steps(RunningSteps(steps, self._api_key))


class ResponseLine:
    """The slots of one connection, and the answers that its peer has not taken."""

    def __init__(self, connection: Connection, limits: ServerLimits, memory: MemoryBudget) -> None:
        self._outgoing = Outgoing(connection)
        self._limits = limits
        self._slots: deque[ResponseSlot] = deque()
        """In the order of the requests. A done slot stays here only behind one that is not done."""
        self.request_bytes = 0
        """Memory of the requests in line: their frames, and what `AnswerSlot.grow` added."""
        self._held_bytes = 0
        """Bytes of answers that wait for one before them."""
        self._counted = Counted(memory.answers_changed)

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

    def add(self, slot: ResponseSlot) -> None:
        self._slots.append(slot)
        self.request_bytes += slot.request_bytes

    def filled(self, slot: ResponseSlot) -> None:
        """A slot of the line was filled or dropped. Counting its answer may close this connection."""
        self._held_bytes += slot.size_bytes
        if slot.size_bytes >= COUNTED_BYTES:
            self.count()

    def send(self, stopwatch: Callable[[], float]) -> None:
        """Send the answers at the head of the line, with one call. Raises ConnectionLost."""
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

    def begin_draining(self) -> bool:
        """True if answers wait for the peer and no task drains them: the caller has to run `drain`."""
        outgoing = self._outgoing
        if not outgoing.unsent_bytes or outgoing.draining:
            return False
        outgoing.draining = True
        return True

    async def drain(self, taken: Callable[[], None]) -> None:
        """Send until the system has all. Calls `taken` whenever the peer took some. Raises ConnectionLost."""
        await self._outgoing.drain(taken)

    def count(self) -> None:
        """Count the memory of answers that have not left. It may close this connection, or another one."""
        held = self._outgoing.memory_bytes
        if self._held_bytes:
            for slot in self._slots:
                for chunk in slot.chunks:
                    if not isinstance(chunk, FileRegion):
                        held += len(chunk)
        self._counted.set(held)

    def count_if_held(self) -> None:
        """Call `count`, unless answers leave at once."""
        if self._outgoing.unsent_bytes or self._counted.size_bytes:
            self.count()

    def clear(self) -> None:
        """Forget all answers: the connection is closed."""
        for slot in self._slots:
            slot.chunks = ()
            slot.timed = None
        self._slots.clear()
        self._outgoing.clear()
        self.request_bytes = self._held_bytes = 0
        self._counted.set(0)
