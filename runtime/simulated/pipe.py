"""One direction of a simulated connection: bytes under way, and bytes that wait to be read.

Bytes arrive in order, and the sender is held back when too many were not read. Knows links, no process.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from barnabas.runtime.simulated.links import Link
from barnabas.runtime.simulated.waiting import WaitingPlace

FIN = bytes(bytearray(b"FIN"))
RST = bytes(bytearray(b"RST"))
"""Marks in a pipe, recognized by identity: objects that no other bytes can be."""


class End(Protocol):
    """An end of a connection, as a pipe sees it."""

    readable: WaitingPlace
    writable: WaitingPlace
    closed: bool
    outgoing: Pipe

    @property
    def buffer_bytes(self) -> int:
        """Most unread bytes in one direction."""

    @property
    def traces_contents(self) -> bool:
        """False if bytes differ in two runs of one seed, and only their number is the same."""

    def note(self, event: str) -> None:
        """Put an arrival into the trace."""

    def peer_gone(self, reason: str) -> None:
        """The notice that the other end closed has arrived."""

    def reset(self) -> None:
        """Bytes arrived for a closed end."""


class Pipe:
    """Bytes under way, and bytes that wait to be read."""

    __slots__ = (
        "_ends",
        "filter",
        "gate",
        "link",
        "received",
        "receiver",
        "sender",
        "sent_badly",
        "unread_bytes",
        "withheld_bytes",
    )

    dials = False

    def __init__(self, link: Link, sender: End, receiver: End) -> None:
        self.link = link
        self.sender = sender
        self.receiver = receiver
        self._ends: deque[bytes] = deque()
        """Sent and not arrived; the marks FIN and RST are recognized by identity."""
        self.received: deque[memoryview] = deque()
        self.unread_bytes = 0
        """Bytes that were sent and not read."""
        self.withheld_bytes = 0
        """Bytes that were read while the way back is closed, so that the sender does not know."""
        self.sent_badly = 0
        """Bytes sent since the link began to reset connections after a number of bytes."""
        self.gate: Callable[[bytes], bool] | None = None
        """Called with each piece, FIN and RST too, before it is sent. False keeps it back; then all that follow must be
        kept back, too, until as many calls of `pass_on` release them."""

        self.filter: Callable[[bytes], None] | None = None
        """Gets each piece, FIN and RST too, instead of the link: it calls `let_out` to send a piece, at any time, and
        `swallowed` to drop one."""

    def send(self, data: bytes) -> None:
        if self.filter is None:
            self.let_out(data)
        else:
            self.filter(data)

    def swallowed(self, size_bytes: int) -> None:
        """These bytes will never arrive: the sender need not wait until they are read."""
        self.unread_bytes -= size_bytes
        if self.has_room():
            self.sender.writable.wake()

    def let_out(self, data: bytes) -> None:
        self._ends.append(data)
        if self.gate is None or self.gate(data):
            self.link.send(self, len(data))

    def pass_on(self, size_bytes: int) -> None:
        """Release the first piece that the gate kept back."""
        self.link.send(self, size_bytes)

    def forget(self) -> None:
        """The sender's kernel is gone or unreachable: bytes that have not arrived never will."""
        self._ends.clear()

    def arrive(self) -> None:
        if not self._ends:
            return
        data = self._ends.popleft()
        receiver = self.receiver
        contents = zlib.crc32(data) if receiver.traces_contents else "encrypted"
        receiver.note(f"{len(data)} bytes {contents}")
        if data is FIN or data is RST:
            receiver.peer_gone("closed by the peer" if data is FIN else "reset by the peer")
        elif receiver.closed:
            receiver.reset()
        else:
            self.received.append(memoryview(data))
            receiver.readable.wake()

    def vanishes(self) -> bool:
        if self._ends and self._ends[0] is RST:
            self._ends.popleft()
            return True
        return False

    def take(self, buffer: memoryview) -> int:
        """Read arrived bytes into `buffer`."""
        taken, room = 0, len(buffer)
        received = self.received
        while received and taken < room:
            head = received[0]
            size = min(len(head), room - taken)
            buffer[taken : taken + size] = head[:size]
            taken += size
            if size == len(head):
                received.popleft()
            else:
                received[0] = head[size:]
        self.acknowledge(taken)
        return taken

    def acknowledge(self, size: int) -> None:
        """Report room to the sender, as soon as the way back is open."""
        back = self.receiver.outgoing.link
        if back.cut or back.stalled:
            if self.withheld_bytes == 0:
                back.held.append(_Acknowledgement(self))
            self.withheld_bytes += size
        else:
            self.unread_bytes -= size + self.withheld_bytes
            self.withheld_bytes = 0
            if self.has_room():
                self.sender.writable.wake()

    def has_room(self) -> bool:
        """True if there is enough room to wake the sender. As in TCP, a little room is not enough, or a full connection
        would move in ever smaller pieces."""
        return self.unread_bytes <= self.sender.buffer_bytes * 2 // 3


class _Acknowledgement:
    """An acknowledgement of read bytes that waits for a closed link."""

    __slots__ = ("_pipe",)

    dials = False

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def arrive(self) -> None:
        self._pipe.acknowledge(0)

    def vanishes(self) -> bool:
        return False
