"""Accepts connections and serves them, within limits. What a request means is its handler's business.

One `Server` may serve several listeners: they share the limits and the flushing of answers, so that a request
on one listener which completes others on another needs no wake-up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from barnabas.runtime.descriptors import DescriptorBudget
from barnabas.runtime.flusher import Flusher
from barnabas.runtime.frames import SCRATCH_BYTES
from barnabas.runtime.memory import MemoryBudget
from barnabas.runtime.quotas.connections import ConnectionQuotas
from barnabas.runtime.refused_peers import RefusedPeers
from barnabas.runtime.request import AnswerSlot, Request, Timed
from barnabas.runtime.response_slot import ResponseSlot
from barnabas.runtime.security import ListenerSecurity
from barnabas.runtime.server_connection import ServerConnection
from barnabas.runtime.server_limits import ServerLimits
from barnabas.runtime.service import Handle, Service
from barnabas.runtime.steps import Steps
from barnabas.runtime.turns import Turns
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import Connection, ConnectionLost, Listener, World

__all__ = [
    "AnswerSlot",
    "Handle",
    "Request",
    "ResponseSlot",
    "Server",
    "ServerLimits",
    "Steps",
    "Timed",
    "serve_listener",
]

log = logging.getLogger(__name__)

FULL_SECONDS = 2
"""Time for which requests may fill the memory that they are allowed, before the largest connection is closed."""

MOST_HELD = 1_000
"""Connections above the rate of their address that are held for a while; others are closed at once."""

ACCEPT_RETRY_SECONDS = 0.1
"""Pause after the machine refused an accept (no descriptors left); without one the retries would only spin."""


class Server:
    """All listeners of one node that lead to one handler."""

    def __init__(self, world: World, handle: Handle, limits: ServerLimits, worker: Worker | None = None) -> None:
        """`worker` is that of the node; without it the server has one of its own."""
        self._world = world
        self._limits = limits
        self._flusher = Flusher()
        self.turns = Turns(world.stopwatch)
        self.memory = MemoryBudget.of(limits.memory_limit_bytes, limits.queued_max_request_bytes)
        self.memory.holders = lambda: list(self._connections.values())
        self.memory.on_room = self._look_for_room
        self._service = Service(
            handle,
            limits,
            world.monotonic,
            self._flusher,
            bytearray(SCRATCH_BYTES + 4),
            self.turns,
            worker or Worker(world.run_blocking),
            self.memory,
            RefusedPeers(),
            world.stopwatch,
            self._overran,
        )
        self.on_long_turn: Callable[[int, float], None] | None = None
        """Called with an API key and seconds when a request held the event loop for longer than its budget."""
        self.on_connection_closed: Callable[[int], None] | None = None
        """Called with the id of each connection that ended, whichever side ended it."""
        self._listeners: list[Listener] = []
        self._connections: dict[int, ServerConnection] = {}
        self._descriptors = DescriptorBudget(world.count_descriptors)
        self._next_id = 0
        self._stopping = False
        self._stopped = trio.Event()
        self._vacancy = trio.lowlevel.ParkingLot()
        """Tasks that wait for a connection to end."""
        self.connection_quotas = ConnectionQuotas(limits, world.monotonic)
        self._limits_altered = trio.Event()
        self._held = 0
        """Connections that are held before they are closed."""

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def local_address(self, connection_id: int) -> tuple[str, int] | None:
        """Host and port of this end of a connection; None if it is closed."""
        serving = self._connections.get(connection_id)
        return None if serving is None else serving.local_address

    async def serve(self, listener: Listener, listener_name: str, security: ListenerSecurity | None = None) -> None:
        """Serve `listener` until cancelled, or until `stop`; then it returns when its last connection has ended."""
        self._listeners.append(listener)
        self.connection_quotas.add_listener(listener_name)
        try:
            async with trio.open_nursery() as helpers:
                helpers.start_soon(self._flusher.run)
                helpers.start_soon(self._close_idle)
                if len(self._listeners) == 1:
                    helpers.start_soon(self.turns.run)
                    helpers.start_soon(self._make_room)
                    helpers.start_soon(self._look_names_up)
                async with trio.open_nursery() as nursery:
                    await self._accept(listener, listener_name, security, nursery)
                helpers.cancel_scope.cancel()
        finally:
            listener.close()
            self._listeners.remove(listener)

    async def stop(self) -> None:
        """Stop accepting and reading, answer the requests under way, and close. The caller bounds the time."""
        self._stopping = True
        self._stopped.set()
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections.values()):
            connection.finish()
        self._vacancy.unpark_all()
        while self._connections:
            await self._vacancy.park()

    def flush(self) -> None:
        """Send filled answers now: saves a wake-up where a callback outside any request fills many slots."""
        self._flusher.flush()

    def afterwards(self, work: Callable[[], None]) -> None:
        """Call `work` after all tasks that are ready now; the answers that it gives leave together. It must not
        raise."""
        self._flusher.afterwards(work)

    async def _accept(
        self, listener: Listener, listener_name: str, security: ListenerSecurity | None, nursery: trio.Nursery
    ) -> None:
        while not self._stopping:
            if not self.connection_quotas.has_room(listener_name):
                await self._vacancy.park()
                continue
            try:
                connection = await listener.accept()
            except ConnectionLost:
                return
            except OSError as error:
                log.error("cannot accept on listener %s: %s", listener_name, error)
                await trio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            if not await self._is_admitted(connection, listener_name, nursery):
                continue
            serving = ServerConnection(self._service, connection, listener_name, self._next_id, security)
            self._connections[self._next_id] = serving
            nursery.start_soon(self._serve_connection, serving, self._next_id, nursery)
            self._next_id += 1
            self._close_excess()

    async def _is_admitted(self, connection: Connection, listener_name: str, nursery: trio.Nursery) -> bool:
        """True if a new connection is to be served. It may have to wait first, and those behind it."""
        quotas = self.connection_quotas
        if not self._has_descriptors():
            connection.close()
            return False
        throttle_ms = quotas.throttle_ms(listener_name)
        if throttle_ms:
            with trio.move_on_after(throttle_ms / 1000):
                await self._stopped.wait()
            while not (quotas.has_room(listener_name) or self._stopping):
                # Another listener took the place meanwhile.
                await self._vacancy.park()
        held_ms = quotas.ip_throttle_ms(listener_name, connection.peer_host)
        if held_ms and self._held < MOST_HELD:
            nursery.start_soon(self._hold, connection, held_ms)
            return False
        if held_ms or self._stopping or self._too_many_from(listener_name, connection.peer_host):
            connection.close()
            return False
        return True

    async def _hold(self, connection: Connection, held_ms: int) -> None:
        """Keep a connection that is not served, so that its client does not try again at once."""
        self._held += 1
        try:
            with trio.move_on_after(held_ms / 1000):
                await self._stopped.wait()
        finally:
            self._held -= 1
            connection.close()

    def _close_excess(self) -> None:
        """Close the connections of clients that were idle for longest: brokers took their places, or there are fewer
        places than before."""
        quotas = self.connection_quotas
        if not quotas.excess:
            return
        going = sum(it.closed for it in self._connections.values())
        clients = [it for it in self._connections.values() if quotas.may_go(it.listener_name) and not it.closed]
        clients.sort(key=lambda it: it.last_active_ms)
        for idle in clients[: max(0, quotas.excess - going)]:
            log.info("closing the connection from %s: max.connections is exceeded", idle.peer_host)
            idle.close()

    def limits_changed(self, limits: ServerLimits) -> None:
        """Use other limits of connections from now on; memory and sizes of requests stay as they are."""
        self.connection_quotas.limits = limits
        self._limits_altered.set()
        self._close_excess()
        self._vacancy.unpark_all()

    async def _look_names_up(self) -> None:
        """Learn the addresses of the names in `max.connections.per.ip.overrides`, again when they are altered."""
        quotas = self.connection_quotas
        while True:
            self._limits_altered = trio.Event()
            found: dict[str, str] = {}
            for name in [*quotas.limits.max_connections_per_ip_overrides]:
                try:
                    addresses = await self._world.run_blocking(partial(self._world.addresses_of, name))
                except OSError as error:
                    log.warning("max.connections.per.ip.overrides: %s has no address: %s", name, error)
                else:
                    found |= dict.fromkeys(addresses, name)
            quotas.names = found
            await self._limits_altered.wait()

    def _overran(self, api_key: int, seconds: float) -> None:
        if self.on_long_turn is not None:
            self.on_long_turn(api_key, seconds)

    def _look_for_room(self) -> None:
        for connection in list(self._connections.values()):
            connection.look_for_room()

    async def _make_room(self) -> None:
        """Requests that never arrive whole, or are never answered, must not keep others waiting for ever."""
        was_full = False
        while True:
            await trio.sleep(FULL_SECONDS)
            if was_full and self.memory.is_full:
                self.memory.make_room()
            was_full = self.memory.is_full

    def _has_descriptors(self) -> bool:
        connections = self._connections
        return self._descriptors.admits(connections.values(), len(connections), self._world.monotonic.now_ms())

    def _too_many_from(self, listener_name: str, host: str) -> bool:
        if self.connection_quotas.opened(listener_name, host):
            return False
        limit = self.connection_quotas.limit_of(host)
        log.info("refusing a connection from %s: it has reached its limit of %d connections", host, limit)
        return True

    async def _serve_connection(self, serving: ServerConnection, connection_id: int, nursery: trio.Nursery) -> None:
        try:
            if self._stopping:
                serving.finish()
            await serving.run(nursery)
        finally:
            serving.close()
            del self._connections[connection_id]
            self.connection_quotas.closed(serving.listener_name, serving.peer_host)
            self._vacancy.unpark_all()
            if self.on_connection_closed is not None:
                self.on_connection_closed(connection_id)

    async def _close_idle(self) -> None:
        idle_ms = self._limits.connections_max_idle_ms
        if idle_ms <= 0:
            return
        while True:
            await trio.sleep(idle_ms / 4000)
            deadline_ms = self._world.monotonic.now_ms() - idle_ms
            for connection in list(self._connections.values()):
                if connection.is_idle_since(deadline_ms):
                    connection.close()


async def serve_listener(
    world: World,
    listener: Listener,
    handle: Handle,
    limits: ServerLimits,
    *,
    listener_name: str = "PLAINTEXT",
) -> None:
    """Serve one listener with a server of its own, until cancelled."""
    await Server(world, handle, limits).serve(listener, listener_name)
