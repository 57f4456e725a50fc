"""The network of one process, which behaves as TCP does: `runtime.world.Network` over links.

Each connection has a pipe for either direction: bytes arrive in order, late, in pieces of any size, and the sender is
held back when too many are unread. Bytes in the middle are never lost; the notice of an end may be.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from barnabas.runtime.network import EAGER_RECEIVES
from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.simulated.disk import SimulatedFile
from barnabas.runtime.simulated.links import Wires
from barnabas.runtime.simulated.pipe import FIN, RST, Pipe
from barnabas.runtime.simulated.process import SimulatedProcess
from barnabas.runtime.simulated.waiting import WaitingPlace
from barnabas.runtime.world import Bytes, Connection, ConnectionLost, DialFailed, DialRefused, File, Listener

EVERYWHERE = ("", "0.0.0.0", "::")
ITSELF = ("localhost", "127.0.0.1", "::1")


@dataclass(slots=True)
class NetworkHabits:
    """Faults of the network for all hosts; set before or while a story runs."""

    short_probability: float = 0.02
    """Probability that a send or a receive takes only some of the possible bytes."""
    dribble: bool = False
    """Receives give three bytes at most."""
    dribblers: dict[str, None] = field(default_factory=dict)
    """Processes that receive one byte at a time."""
    buffer_bytes: int = 256 * 1024
    """Unread bytes that one direction of a connection holds."""
    encrypted: bool = False
    """Connections carry TLS. Its bytes come from OpenSSL's own chance, so the trace has only their numbers; these are
    the same in two runs if certificates have RSA keys."""


class Fabric:
    """Shared by the networks of all processes: links, names, listeners, and the trace."""

    def __init__(self, wires: Wires, chance: Stream, trace: Callable[[str], None]) -> None:
        self.wires = wires
        self.chance = chance
        self.trace = trace
        self.habits = NetworkHabits()
        self.names: dict[str, str] = {}
        """Host names and further addresses, and the node behind each."""
        self.unresolved: dict[str, None] = {}
        """Known names whose lookup fails."""
        self.lookups_failed = 0
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.on_connected: Callable[[SimulatedConnection, SimulatedConnection], None] | None = None
        """Called with both ends of each new connection, that of the dialler first, before anything is sent."""
        self._next_port = 32768

    def next_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimulatedConnection:
    """One end of a connection."""

    incoming: Pipe
    outgoing: Pipe

    def __init__(self, fabric: Fabric, process: SimulatedProcess, peer_host: str, peer_port: int) -> None:
        self.fabric = fabric
        self.number = fabric.next_port()
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.local_address = (process.name, self.number)
        self.readable = WaitingPlace()
        self.writable = WaitingPlace()
        self.closed = False
        self._process = process
        self._gone: str | None = None
        """Reason why the peer's end is gone, once that is known here."""
        self._reset = False
        self._eager = 0
        process.on_end.append(self._process_ended)

    async def receive_into(self, buffer: memoryview) -> int:
        assert len(buffer) > 0
        self._eager += 1
        if self._eager >= EAGER_RECEIVES:
            self._eager = 0
            await trio.lowlevel.checkpoint()
        incoming = self.incoming
        while not incoming.received or self._reset:
            self._check_open()
            if self._gone is not None:
                raise ConnectionLost(self._gone)
            self._eager = 0
            await self.readable.wait()
        self._check_open()
        habits = self.fabric.habits
        if habits.dribble:
            buffer = buffer[:3]
        elif self._process.name in habits.dribblers:
            buffer = buffer[:1]
        elif self.fabric.chance.random() < habits.short_probability:
            buffer = buffer[: self.fabric.chance.randint(1, len(buffer))]
        return incoming.take(buffer)

    def send_now(self, views: Sequence[Bytes]) -> int:
        self._check_sendable()
        room = max(self._room(), 0)
        taken: list[Bytes] = []
        for view in views:
            if len(view) >= room:
                taken.append(memoryview(view)[:room])
                break
            taken.append(view)
            room -= len(view)
        return self._send(b"".join(taken))

    def send_file_now(self, file: File, offset: int, count: int) -> int:
        self._check_sendable()
        if count == 0:
            return 0
        assert isinstance(file, SimulatedFile), "a simulated connection sends simulated files only"
        data = file.pread(min(count, max(self._room(), 1)), offset)
        if not data:
            raise EOFError(f"{file.path} ends before byte {offset + 1}")
        return self._send(data)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while True:
            self._check_sendable()
            if self.outgoing.has_room():
                return
            await self.writable.wait()

    def close(self) -> None:
        if not self.closed:
            self._end(self._last_mark())
            self._process.on_end.remove(self._process_ended)

    @property
    def buffer_bytes(self) -> int:
        return self.fabric.habits.buffer_bytes

    @property
    def traces_contents(self) -> bool:
        return not self.fabric.habits.encrypted

    def note(self, event: str) -> None:
        self.fabric.trace(f"{self.peer_host}>{self._process.name} {self.number} {event}")

    def has_ended(self) -> bool:
        return self.closed or self._gone is not None

    def peer_gone(self, reason: str) -> None:
        """The notice that the other end closed has arrived."""
        if self._gone is None:
            self._gone = reason
            self._reset = reason != "closed by the peer"
            self.readable.wake()
            self.writable.wake()

    def reset(self) -> None:
        """Answer bytes for a connection that is closed here."""
        if self.outgoing.link.open:
            self.outgoing.send(RST)

    def _send(self, data: bytes) -> int:
        size = min(len(data), self._room())
        habits = self.fabric.habits
        if size > 1 and self.fabric.chance.random() < habits.short_probability:
            size = self.fabric.chance.randint(1, size)
        bad = self.outgoing.link.bad
        if bad is not None and bad.reset_after_bytes > 0:
            return self._send_or_break(data[:size], bad.reset_after_bytes)
        if size > 0:
            self.outgoing.unread_bytes += size
            self.outgoing.send(data if size == len(data) else data[:size])
        return max(size, 0)

    def _send_or_break(self, data: bytes, limit_bytes: int) -> int:
        """Send, and reset the connection once it has carried `limit_bytes`."""
        outgoing = self.outgoing
        size = min(len(data), limit_bytes - outgoing.sent_badly)
        outgoing.sent_badly += size
        if size > 0:
            outgoing.unread_bytes += size
            outgoing.send(data[:size])
        if outgoing.sent_badly >= limit_bytes:
            outgoing.send(RST)
            self.peer_gone("reset by the peer")
        return size

    def _room(self) -> int:
        return self.fabric.habits.buffer_bytes - self.outgoing.unread_bytes

    def _process_ended(self, power_cut: bool) -> None:
        cut = self.outgoing.link.cut
        if cut:
            # The end is not retransmitted; the other end notices it only when it sends something itself.
            self.outgoing.forget()
        self._end(None if cut or power_cut else self._last_mark())

    def _last_mark(self) -> bytes:
        # As in TCP, unread bytes turn the end into a reset.
        return RST if self.incoming.received else FIN

    def _end(self, mark: bytes | None) -> None:
        self.closed = True
        self.incoming.received.clear()
        if mark is not None and self._gone is None:
            self.outgoing.send(mark)
        self.readable.wake()
        self.writable.wake()

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionLost("closed here")

    def _check_sendable(self) -> None:
        if self.closed:
            raise ConnectionLost("closed here")
        if self._gone is not None:
            raise ConnectionLost(self._gone)


class SimulatedListener:
    """A listening port of a process."""

    def __init__(self, fabric: Fabric, process: SimulatedProcess, port: int) -> None:
        self.port = port
        self._fabric = fabric
        self._process = process
        self._arrived: deque[SimulatedConnection] = deque()
        self._waiting = WaitingPlace()
        self._closed = False
        fabric.listeners[process.name, port] = self
        process.on_end.append(self._process_ended)

    @property
    def process(self) -> SimulatedProcess:
        return self._process

    def offer(self, connection: SimulatedConnection) -> None:
        """A dial arrived."""
        self._arrived.append(connection)
        self._waiting.wake()

    async def accept(self) -> Connection:
        await trio.lowlevel.checkpoint()
        while not self._closed:
            if self._arrived:
                return self._arrived.popleft()
            await self._waiting.wait()
        raise ConnectionLost("the listener is closed")

    def close(self) -> None:
        if not self._closed:
            self._process.on_end.remove(self._process_ended)
            self._process_ended(False)

    def _process_ended(self, power_cut: bool) -> None:
        self._closed = True
        del self._fabric.listeners[self._process.name, self.port]
        if self._process.alive:
            for connection in self._arrived:
                connection.close()
        self._waiting.wake()


class _Dial:
    """A dial under way: it arrives twice, as the request there and as the answer here."""

    dials = True

    def __init__(self, fabric: Fabric, process: SimulatedProcess, target: str, port: int) -> None:
        self._fabric = fabric
        self._process = process
        self._target = target
        self._port = port
        self._asked = False
        self.answer = WaitingPlace()
        self.answered = False
        self.connection: SimulatedConnection | None = None
        self.given_up = False

    def arrive(self) -> None:
        fabric, source = self._fabric, self._process.name
        if not self._asked:
            self._asked = True
            fabric.trace(f"{source}>{self._target} dial {self._port}")
            listener = fabric.listeners.get((self._target, self._port))
            if listener is not None:
                self.connection = self._connect(listener)
            fabric.wires.link(self._target, source).send(self)
            return
        fabric.trace(f"{self._target}>{source} {'connected' if self.connection else 'refused'}")
        self.answered = True
        if self.connection is not None and (self.given_up or not self._process.alive):
            self.connection.close()
        self.answer.wake()

    def vanishes(self) -> bool:
        return False

    def _connect(self, listener: SimulatedListener) -> SimulatedConnection:
        fabric = self._fabric
        near = SimulatedConnection(fabric, self._process, self._target, self._port)
        far = SimulatedConnection(fabric, listener.process, self._process.name, near.number)
        far.local_address = (listener.process.name, self._port)
        wires = fabric.wires
        near.outgoing = far.incoming = Pipe(wires.link(self._process.name, self._target), near, far)
        far.outgoing = near.incoming = Pipe(wires.link(self._target, self._process.name), far, near)
        if fabric.on_connected is not None:
            fabric.on_connected(near, far)
        listener.offer(far)
        return near


class SimulatedNetwork:
    """The network of a process."""

    def __init__(self, fabric: Fabric, process: SimulatedProcess) -> None:
        self._fabric = fabric
        self._process = process

    async def dial(self, host: str, port: int) -> Connection:
        await trio.lowlevel.checkpoint()
        if not self._process.alive:
            raise DialFailed(f"{self._process.name} was killed")
        target = self._process.name if host in ITSELF else self._fabric.names.get(host)
        if target is None or host in self._fabric.unresolved:
            self._fabric.lookups_failed += 1
            raise DialFailed(f"{host}: unknown name")
        dial = _Dial(self._fabric, self._process, target, port)
        self._fabric.wires.link(self._process.name, target).send(dial)
        try:
            while not dial.answered:
                await dial.answer.wait()
        except BaseException:
            dial.given_up = True
            raise
        if dial.connection is None:
            raise DialRefused(f"{host}:{port}: connection refused")
        return dial.connection

    async def listen(self, host: str, port: int, *, shared: bool = False) -> Listener:
        """Processes have addresses of their own, so `shared` changes nothing."""
        await trio.lowlevel.checkpoint()
        self._process.check_alive()
        name = self._process.name
        if host not in EVERYWHERE and host not in ITSELF and self._fabric.names.get(host) != name:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL), host)
        if port == 0:
            port = self._fabric.next_port()
        if (name, port) in self._fabric.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), f"{host}:{port}")
        return SimulatedListener(self._fabric, self._process, port)
