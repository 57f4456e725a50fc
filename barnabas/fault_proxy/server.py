"""The proxy's sockets: a port for each way from one node to another, and one for clients to each broker.

Every way has its own port, so that the proxy knows who asks whom. A port refuses whenever its target does, because a
refused dial is evidence of death to a cluster: when a dial to the target is refused, its ports stop listening, and they
listen again when it takes connections. The ports stay ours all the time.

The proxy sends nodes one byte before anything else, so that their dial ends when the target has answered, and not when
the proxy has: `CONNECTED` or `REFUSED`. Over a cut link no byte comes. Clients get no such byte, since they may be any
program.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Mapping

import trio

from barnabas.fault_proxy.frames import Conversation
from barnabas.fault_proxy.pump import Proxied
from barnabas.fault_proxy.rules import CLIENT, Faults, LinkState
from barnabas.fault_proxy.stream import Ends, Stream
from barnabas.runtime.network import RealNetwork, SocketConnection
from barnabas.runtime.world import Connection, ConnectionLost, DialFailed, DialRefused

CONNECTED, REFUSED = b"+", b"-"
LOOPBACK = "127.0.0.1"
PROBE_SECONDS = 0.02
"""Pause before a target that refuses is dialled again."""
_BACKLOG = 512
_PORTS = (10_000, 20_000)
"""Below the range from which Linux draws ports for outgoing connections, and beside that of nodes."""
_PORT_TRIES = 2_000
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Pair = tuple[str, str]


class Target:
    """A node, as far as the proxy knows whether it listens."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.listens = False
        self.gates: list[Gate] = []
        self.doubted = trio.Event()
        """Set when it should be asked again."""

    def set_listens(self, listens: bool) -> None:
        self.listens = listens
        for gate in self.gates:
            gate.set_open(listens)

    async def watch(self, network: RealNetwork) -> None:
        """Dials it when there is doubt, and again and again while it refuses."""
        while True:
            try:
                connection = await network.dial(LOOPBACK, self.port)
            except DialRefused:
                if self.listens:
                    self.set_listens(False)
            except DialFailed:
                pass
            else:
                connection.close()
                if not self.listens:
                    self.set_listens(True)
            if self.listens:
                await self.doubted.wait()
                self.doubted = trio.Event()
            else:
                await trio.sleep(PROBE_SECONDS)


class Gate:
    """One port of ours: it listens or refuses, and stays ours."""

    def __init__(self, source: str, target: Target) -> None:
        self.source = source
        self.target = target
        self._socket = _bound_socket()
        self.port: int = self._socket.getsockname()[1]
        self._opened = trio.Event()
        target.gates.append(self)

    def set_open(self, is_open: bool) -> None:
        if is_open and not self._opened.is_set():
            self._socket.listen(_BACKLOG)
            self._opened.set()
        elif not is_open and self._opened.is_set():
            # New dials are refused from now on, and connections in the backlog are reset.
            self._opened = trio.Event()
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    async def accept(self) -> socket.socket:
        while True:
            await self._opened.wait()
            try:
                accepted, _address = self._socket.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except OSError:
                # It was closed for the moment, or what dialled has gone again.
                await trio.lowlevel.checkpoint()
            else:
                accepted.setblocking(False)
                return accepted


class Proxy:
    """All ports, all connections, and what is wrong with them."""

    def __init__(self, nodes: Mapping[str, int], for_clients: Mapping[str, int], seed: int | None = None) -> None:
        """Ports by name: `nodes` where nodes reach each other, `for_clients` where clients reach some of them. Raises
        OSError if no ports are to be had."""
        self.faults = Faults(self._faults_changed)
        self.chance = random.Random(seed)
        self._network = RealNetwork()
        self._targets = {each: Target(*each) for each in (*nodes.items(), *for_clients.items())}
        self._gates = [
            Gate(source, self._targets[target]) for source in nodes for target in nodes.items() if source != target[0]
        ]
        self._gates += [Gate(CLIENT, self._targets[target]) for target in for_clients.items()]
        self._connections: dict[Proxied, None] = {}
        self._changed = trio.Event()

    @property
    def ports(self) -> dict[Pair, int]:
        """By (source, target)."""
        return {(gate.source, gate.target.name): gate.port for gate in self._gates}

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def run(self) -> None:
        """Until cancelled; then the ports are free again."""
        try:
            async with trio.open_nursery() as nursery:
                for target in self._targets.values():
                    nursery.start_soon(target.watch, self._network)
                for gate in self._gates:
                    nursery.start_soon(self._serve, gate, nursery)
        finally:
            for gate in self._gates:
                gate.close()

    async def _serve(self, gate: Gate, nursery: trio.Nursery) -> None:
        while True:
            accepted = await gate.accept()
            nursery.start_soon(self._carry, gate, accepted)

    async def _carry(self, gate: Gate, accepted: socket.socket) -> None:
        """One connection, from beginning to end."""
        try:
            near = SocketConnection(accepted, accepted.getpeername())
        except OSError:  # it was reset before we looked at it
            accepted.close()
            return
        far: Connection | None = None
        was_reset = False
        try:
            far = await self._connect(gate, near)
            if far is not None:
                was_reset = await self._exchange(gate, near, far)
        except ConnectionLost:
            pass
        finally:
            # A node got REFUSED, which a reset would take back.
            if was_reset or (far is None and gate.source == CLIENT):
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            near.close()
            if far is not None:
                far.close()

    async def _connect(self, gate: Gate, near: Connection) -> Connection | None:
        """To the target, once both ways carry; None if it refuses."""
        announced = False
        while not self._carries(gate):
            if not announced and self._only_half_open(gate) and gate.source != CLIENT:
                await _send(near, CONNECTED)
                announced = True
            await self._changed.wait()
        try:
            far = await self._network.dial(LOOPBACK, gate.target.port)
        except DialFailed:
            gate.target.doubted.set()
            if gate.source != CLIENT and not announced:
                await _send(near, REFUSED)
            return None
        if gate.source != CLIENT and not announced:
            try:
                await _send(near, CONNECTED)
            except BaseException:
                far.close()
                raise
        return far

    def _carries(self, gate: Gate) -> bool:
        there, back = self._links(gate)
        return there.carries and back.carries

    def _only_half_open(self, gate: Gate) -> bool:
        there, back = self._links(gate)
        return not there.cut and not back.cut

    def _links(self, gate: Gate) -> tuple[LinkState, LinkState]:
        source, target = gate.source, gate.target.name
        return self.faults.link(source, target), self.faults.link(target, source)

    async def _exchange(self, gate: Gate, near: Connection, far: Connection) -> bool:
        """True if a fault broke it."""
        ends, conversation = Ends(gate.source, gate.target.name), Conversation()
        requests = Stream(ends, conversation, self.faults, self.chance, is_request=True)
        answers = Stream(ends, conversation, self.faults, self.chance, is_request=False)
        proxied = Proxied(requests, answers, near, far)
        self._connections[proxied] = None
        try:
            await proxied.run()
        finally:
            del self._connections[proxied]
            if proxied.lost_target:
                gate.target.doubted.set()
        return proxied.was_reset

    def _faults_changed(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        for proxied in self._connections:
            proxied.wake()


async def _send(connection: Connection, data: bytes) -> None:
    while not connection.send_now([data]):
        await connection.wait_writable()


def _bound_socket() -> socket.socket:
    """Bound to a port by its number: a socket keeps such a port while it does not listen."""
    chance = random.SystemRandom()
    for _ in range(_PORT_TRIES):
        bound = socket.socket()
        try:
            bound.setblocking(False)
            bound.bind((LOOPBACK, chance.randrange(*_PORTS)))
            # Only now: nobody else may have the port, and we may listen again while old connections are about.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            bound.close()
            continue
        return bound
    raise OSError(f"no free ports between {_PORTS[0]} and {_PORTS[1]}")
