"""A proxy before somebody's cluster: one listener for each broker, opened when the broker becomes known."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.dialogue import Common, Dialogue
from barnabas.fault_proxy.login import Login, LoginFailed
from barnabas.fault_proxy.pump import Proxied
from barnabas.fault_proxy.rules import CLIENT, LinkState
from barnabas.fault_proxy.target import address_text, ask_target
from barnabas.runtime.network import SocketConnection
from barnabas.runtime.security import ChannelSecurity, HandshakeFailed
from barnabas.runtime.world import Connection, ConnectionLost, DialFailed, World

log = logging.getLogger(__name__)

Address = tuple[str, int]

LOOPBACK = "127.0.0.1"
EVERYWHERE = ("", "0.0.0.0", "::")
CONNECT_SECONDS = 10.0
BACKLOG = 512
MOST_LISTENERS = 200
MOST_CONNECTIONS = 10_000
NEXT_PORTS = 100
"""Ports that are tried after the wanted one, for brokers that become known."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
ACCEPT_RETRY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """A proxy as its user wants it."""

    to: tuple[Address, ...]
    """Bootstrap servers of the cluster."""
    port: int = 0
    """Port for the first of them, and from there on for the others; 0: any free ones."""
    host: str = LOOPBACK
    """Address to listen on."""
    advertise: str | None = None
    """Host that clients are given; None: the one that they came in by."""
    security: ChannelSecurity | None = None
    """TLS and SASL towards the cluster."""


@dataclass(eq=False, slots=True)
class BrokerListener:
    """One broker and the port that stands for it."""

    address: Address
    socket: socket.socket
    port: int
    node_id: int = -1
    """-1: unknown."""

    @property
    def name(self) -> str:
        return address_text(*self.address)


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A fault of the ways to some brokers."""

    broker: str
    """`host:port` of a broker as the cluster names it, or its id; empty: all."""
    direction: str
    """`both`, `requests` or `responses`."""
    state: LinkState

    def is_about(self, listener: BrokerListener) -> bool:
        return self.broker in ("", listener.name, str(listener.node_id))


@dataclass(eq=False)
class ClusterProxy:
    """All listeners and connections of a proxy. `run` moves them; everything else returns at once."""

    world: World
    options: ProxyOptions
    common: Common
    on_listener: Callable[[BrokerListener], None] = lambda listener: None
    listeners: dict[Address, BrokerListener] = field(default_factory=dict)
    _links: list[LinkFault] = field(default_factory=list)
    _connections: dict[Proxied, None] = field(default_factory=dict)
    _ends: dict[int, tuple[Address, Address]] = field(default_factory=dict)
    _numbers: int = 0
    _nursery: trio.Nursery | None = None

    def __post_init__(self) -> None:
        self.common.faults.on_change = self._faults_changed

    async def run(self, *, task_status: trio.TaskStatus[ClusterProxy] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; started when clients may connect. Raises `ClusterError`."""
        try:
            async with trio.open_nursery() as self._nursery:
                for address in self.options.to:
                    self._open(address)
                await self._look_at_target()
                task_status.started(self)
        finally:
            for listener in self.listeners.values():
                listener.socket.close()

    @property
    def bootstrap_servers(self) -> str:
        """For clients."""
        host = self.options.advertise or (LOOPBACK if self.options.host in EVERYWHERE else self.options.host)
        return ",".join(address_text(host, self.listeners[address].port) for address in self.options.to)

    @property
    def connected(self) -> list[Proxied]:
        """The connections that are open."""
        return list(self._connections)

    @property
    def targets(self) -> list[str]:
        """The bootstrap servers of the cluster."""
        return [address_text(*address) for address in self.options.to]

    def brokers(self) -> list[dict[str, Any]]:
        """Addresses of the cluster, and the port of the proxy for each."""
        return [{"broker": each.name, "node_id": each.node_id, "port": each.port} for each in self.listeners.values()]

    def node_id_of(self, broker: str) -> int:
        """-1: unknown."""
        return next((each.node_id for each in self.listeners.values() if each.name == broker), -1)

    def ends_of(self, connection: int) -> tuple[Address, Address]:
        """Addresses of the client and of the broker of an open connection, by its number."""
        return self._ends[connection]

    def complain(self, text: str) -> None:
        """Log a line about the proxy itself."""
        log.warning("%s", text)

    # ---- links

    def set_link(self, state: LinkState, broker: str = "", direction: str = "both") -> None:
        """Break the ways to a broker, or to all. The last fault of a way counts. ClusterError for an unknown broker."""
        fault = LinkFault(broker, direction, state)
        if broker and not any(map(fault.is_about, self.listeners.values())):
            known = ", ".join(f"{each.node_id} ({each.name})" for each in self.listeners.values())
            raise ClusterError(f"broker must be one of {known}; got {broker!r}")
        self._links.append(fault)
        for listener in self.listeners.values():
            self._break(listener)

    def heal(self) -> None:
        """Make all ways whole. Rules stay."""
        self._links.clear()
        self.common.faults.heal()

    def _break(self, listener: BrokerListener) -> None:
        for fault in self._links:
            if fault.is_about(listener):
                if fault.direction in ("both", "requests"):
                    self.common.faults.set_link(CLIENT, listener.name, fault.state)
                if fault.direction in ("both", "responses"):
                    self.common.faults.set_link(listener.name, CLIENT, fault.state)

    def _faults_changed(self) -> None:
        for proxied in self._connections:
            proxied.wake()

    # ---- listeners

    def local_port(self, host: str, port: int, node_id: int = -1) -> int:
        """Port of the proxy for a broker; opened if it is new."""
        listener = self.listeners.get((host, port)) or self._open((host, port))
        if node_id >= 0:
            listener.node_id = node_id
        return listener.port

    def _local(self, near_host: str, host: str, port: int, node_id: int) -> Address:
        return self.options.advertise or near_host, self.local_port(host, port, node_id)

    def _open(self, address: Address) -> BrokerListener:
        if len(self.listeners) >= MOST_LISTENERS:
            raise ClusterError(f"the cluster names more than {MOST_LISTENERS} addresses")
        wanted = self.options.port
        is_named = address in self.options.to
        first = wanted + len(self.listeners) if wanted else 0
        tried = range(first, first + (1 if is_named and not self.listeners else NEXT_PORTS)) if wanted else range(1)
        opened = _listen(self.options.host, tried)
        listener = self.listeners[address] = BrokerListener(address, opened, opened.getsockname()[1])
        self._break(listener)
        assert self._nursery is not None
        self._nursery.start_soon(self._serve, listener, self._nursery)
        return listener

    async def _look_at_target(self) -> None:
        """Learn brokers and topics, and find out early that the target is away."""
        answer = await ask_target(self.world, self.options.to, self.options.security)
        if answer is not None:
            self.common.topics.learn(answer)
            for broker in answer.brokers:
                self.local_port(broker.host, broker.port, broker.node_id)

    async def _serve(self, listener: BrokerListener, nursery: trio.Nursery) -> None:
        while True:
            try:
                accepted, _ = listener.socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                await trio.lowlevel.wait_readable(listener.socket)
                continue
            except OSError as error:
                log.error("cannot accept: %s", error)
                await trio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            if len(self._connections) >= MOST_CONNECTIONS:
                accepted.close()
                continue
            accepted.setblocking(False)
            nursery.start_soon(self._carry, listener, accepted)
            await trio.lowlevel.checkpoint()

    # ---- connections

    async def _carry(self, listener: BrokerListener, accepted: socket.socket) -> None:
        """One connection, from beginning to end."""
        try:
            near = SocketConnection(accepted, accepted.getpeername())
        except OSError:  # it was reset before we looked at it
            accepted.close()
            return
        far: Connection | None = None
        was_reset = False
        try:
            far = await self._connect(listener)
            if far is not None:
                was_reset = await self._exchange(listener, near, far)
        except ConnectionLost:
            pass
        except Exception:
            # A mistake of ours ends this connection alone.
            log.exception("%s: the connection of %s ended", listener.name, near.peer_host)
        finally:
            if was_reset or far is None:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            near.close()
            if far is not None:
                far.close()

    async def _connect(self, listener: BrokerListener) -> Connection | None:
        """To the broker; None if it is away."""
        host, port = listener.address
        reason = f"no answer within {CONNECT_SECONDS:.0f} s"
        dialled: Connection | None = None
        with trio.move_on_after(CONNECT_SECONDS):
            try:
                dialled = await self.world.network.dial(host, port)
                security = self.options.security
                return dialled if security is None else await security.secure(dialled, host)
            except (DialFailed, HandshakeFailed, ConnectionLost) as error:
                reason = str(error)
            except BaseException:
                if dialled is not None:
                    dialled.close()
                raise
        if dialled is not None:
            dialled.close()
        log.warning("%s: %s", listener.name, reason)
        return None

    async def _exchange(self, listener: BrokerListener, near: Connection, far: Connection) -> bool:
        """True if a fault broke it."""
        self._numbers += 1
        security = self.options.security
        authenticator = None if security is None else security.authenticator
        local = partial(self._local, near.local_address[0])
        dialogue = Dialogue(self._numbers, listener.name, self.common, local, is_held=authenticator is not None)
        proxied = Proxied(dialogue.requests, dialogue.answers, near, far, answers_here=True)
        self._connections[proxied] = None
        number = self._numbers
        self._ends[number] = (near.peer_host, near.peer_port), (far.peer_host, far.peer_port)
        try:
            async with trio.open_nursery() as nursery:
                if authenticator is not None:
                    login = Login(authenticator, dialogue, proxied, listener.address)
                    nursery.start_soon(_log_in, login, dialogue, proxied)
                await proxied.run()
                nursery.cancel_scope.cancel()
        finally:
            del self._connections[proxied], self._ends[number]
        if dialogue.reason:
            log.warning("%s: %s", listener.name, dialogue.reason)
        return proxied.was_reset


async def _log_in(login: Login, dialogue: Dialogue, proxied: Proxied) -> None:
    try:
        await login.run()
    except LoginFailed as error:
        dialogue.stop(f"the login of the proxy failed: {error}", trio.current_time())
        proxied.wake()


def _listen(host: str, ports: range) -> socket.socket:
    """Listen on the first port that is free. Raises `ClusterError`."""
    everywhere = host == "" and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
    reason = ""
    for port in ports:
        try:
            opened = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=everywhere)
        except (OSError, OverflowError) as error:
            known = isinstance(error, OSError) and error.errno is not None and error.errno > 0
            reason = os.strerror(error.errno) if known else str(error)  # type: ignore[arg-type,union-attr]
            continue
        opened.setblocking(False)
        return opened
    span = f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    raise ClusterError(f"cannot listen on {host or '*'}, {span}: {reason}; --listen 0 takes any free ports")
