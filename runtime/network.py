"""The machine's network: TCP on plain nonblocking sockets, waiting with trio. Knows nothing of frames.

Two promises that callers rely on: `receive_into` fills the buffer in the receiver's own turn, right before it returns
(so idle connections may share one buffer), and every connection yields to other tasks at least once in
`EAGER_RECEIVES` receives, however fast the peer sends.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Sequence
from typing import Any

import trio

from barnabas.runtime.disk import RealFile
from barnabas.runtime.world import Bytes, Connection, ConnectionLost, DialFailed, DialRefused, File, Listener

EAGER_RECEIVES = 16
VAIN_RECEIVES = 3
"""Receives in a row that found nothing, after which a connection waits before it receives: its peer sends one request
at a time. Once in `EAGER_RECEIVES` it tries all the same."""
BACKLOG = 1024
ADDRESS_DELAY_SECONDS = 0.25
"""Delay between the attempts at two addresses of a name (RFC 8305: Connection Attempt Delay)."""

_VIEWS_AT_ONCE = min(os.sysconf("SC_IOV_MAX"), 1024)
_NOT_OUR_FAMILY = {errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""This machine has no route in that address family: no evidence about the peer."""


class SocketConnection:
    """One connected TCP socket."""

    __slots__ = ("_descriptor", "_eager", "_in_vain", "_socket", "peer_host", "peer_port")

    def __init__(self, connected: socket.socket, address: tuple[Any, ...]) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = connected
        self._descriptor = connected.fileno()
        self._eager = 0
        self._in_vain = 0
        self.peer_host = str(address[0]).removeprefix("::ffff:")
        self.peer_port = int(address[1])

    @property
    def local_address(self) -> tuple[str, int]:
        host, port, *_ = self._socket.getsockname()
        return str(host).removeprefix("::ffff:"), int(port)

    async def receive_into(self, buffer: memoryview) -> int:
        assert len(buffer) > 0
        self._eager += 1
        if self._eager >= EAGER_RECEIVES:
            self._eager = 0
            await trio.lowlevel.checkpoint()
        if self._in_vain < VAIN_RECEIVES or self._in_vain % EAGER_RECEIVES == 0:
            count = self._receive_now(buffer)
            if count:
                self._in_vain = 0
                return count
        self._in_vain += 1
        while True:
            self._eager = 0
            if self._descriptor < 0:
                raise ConnectionLost("closed here")
            try:
                await trio.lowlevel.wait_readable(self._descriptor)
            except trio.ClosedResourceError as error:
                raise ConnectionLost("closed here") from error
            count = self._receive_now(buffer)
            if count:
                return count

    def _receive_now(self, buffer: memoryview) -> int:
        """Bytes received; 0 if none has arrived."""
        if self._descriptor < 0:
            raise ConnectionLost("closed here")
        try:
            count = self._socket.recv_into(buffer)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if count == 0:
            raise ConnectionLost("closed by the peer")
        return count

    def send_now(self, views: Sequence[Bytes]) -> int:
        if self._descriptor < 0:
            raise ConnectionLost("closed here")
        try:
            if len(views) == 1:
                return self._socket.send(views[0])
            return self._socket.sendmsg(views[:_VIEWS_AT_ONCE])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def send_file_now(self, file: File, offset: int, count: int) -> int:
        if self._descriptor < 0:
            raise ConnectionLost("closed here")
        if count == 0:
            return 0
        assert isinstance(file, RealFile), "a real connection sends real files only"
        source = file.fileno()
        try:
            sent = os.sendfile(self._descriptor, source, offset, count)
        except BlockingIOError:
            return 0
        except ConnectionError as error:
            raise ConnectionLost(str(error)) from error
        if sent == 0:
            raise EOFError(f"{file.path} ends before byte {offset + 1}")
        return sent

    async def wait_writable(self) -> None:
        if self._descriptor < 0:
            raise ConnectionLost("closed here")
        try:
            await trio.lowlevel.wait_writable(self._descriptor)
        except trio.ClosedResourceError as error:
            raise ConnectionLost("closed here") from error

    def has_ended(self) -> bool:
        if self._descriptor < 0:
            return True
        looking = select.poll()
        looking.register(self._descriptor, select.POLLRDHUP)
        return bool(looking.poll(0))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            trio.lowlevel.notify_closing(descriptor)
            self._socket.close()


class SocketListener:
    """One listening TCP socket."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._closed = False
        self.port: int = listening.getsockname()[1]

    async def accept(self) -> Connection:
        """The next connection; ConnectionLost once closed, OSError if the machine has no sockets left."""
        await trio.lowlevel.checkpoint()
        while not self._closed:
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                pass
            else:
                accepted.setblocking(False)
                try:
                    return SocketConnection(accepted, address)
                except OSError:  # reset before we looked at it
                    accepted.close()
                    continue
            try:
                await trio.lowlevel.wait_readable(self._socket)
            except trio.ClosedResourceError:
                break
        raise ConnectionLost("the listener is closed")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class RealNetwork:
    """The machine's TCP/IP."""

    async def dial(self, host: str, port: int) -> Connection:
        """Try all addresses of the name, in the order that the system prefers: the next one when one has failed or has
        not answered for a moment. The first connection wins (RFC 8305)."""
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise DialFailed(f"{host}: {error}") from error
        if len(found) == 1:
            [(family, _, _, _, address)] = found
            try:
                return await _connect(family, address)
            except OSError as error:
                raise _dial_error(host, port, [error]) from error
        return await _Race(host, port, [(entry[0], entry[4]) for entry in found]).run()

    async def listen(self, host: str, port: int, *, shared: bool = False) -> Listener:
        """Listen on `host`; the empty name means all interfaces, IPv6 and IPv4."""
        if not host:
            return SocketListener(_listen_everywhere(port, shared=shared))
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name with addresses of both families listens on its first IPv4 one, as Java's default is.
        family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        return SocketListener(_bind(family, address, shared=shared))


class _Race:
    """A dial to many addresses of one name."""

    def __init__(self, host: str, port: int, addresses: Sequence[tuple[int, tuple[Any, ...]]]) -> None:
        self._host = host
        self._port = port
        self._addresses = addresses
        self._failures: list[OSError] = []
        self._winner: SocketConnection | None = None

    async def run(self) -> Connection:
        """Raises as `Network.dial`."""
        try:
            async with trio.open_nursery() as nursery:
                for family, address in self._addresses:
                    failed = trio.Event()
                    nursery.start_soon(self._try, family, address, failed, nursery.cancel_scope)
                    with trio.move_on_after(ADDRESS_DELAY_SECONDS):
                        await failed.wait()
        except BaseException:
            if self._winner is not None:
                self._winner.close()
            raise
        if self._winner is None:
            raise _dial_error(self._host, self._port, self._failures)
        return self._winner

    async def _try(self, family: int, address: tuple[Any, ...], failed: trio.Event, race: trio.CancelScope) -> None:
        try:
            connection = await _connect(family, address)
        except OSError as error:
            self._failures.append(error)
            failed.set()
            return
        if self._winner is None:
            self._winner = connection
            race.cancel()
        else:
            connection.close()


def _dial_error(host: str, port: int, failures: Sequence[OSError]) -> DialFailed:
    evidence = [failure for failure in failures if failure.errno not in _NOT_OUR_FAMILY]
    text = f"{host}:{port}: " + ("; ".join(map(str, failures)) or "no address")
    if evidence and all(isinstance(failure, ConnectionRefusedError) for failure in evidence):
        return DialRefused(text)
    return DialFailed(text)


def addresses_of(name: str) -> list[str]:
    """The IP addresses of a host, each once. Slow. Raises OSError."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(str(error)) from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def canonical_names(host: str) -> list[str]:
    """The canonical names of the addresses of `host`, each once; `host` alone if they have none."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        names = [(await trio.socket.getnameinfo((str(entry[4][0]), 0), 0))[0] for entry in found]
    except (OSError, UnicodeError):
        return [host]
    return list(dict.fromkeys(names)) or [host]


async def _connect(family: int, address: tuple[Any, ...]) -> SocketConnection:
    dialling = socket.socket(family, socket.SOCK_STREAM)
    try:
        dialling.setblocking(False)
        code = dialling.connect_ex(address)
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(dialling)
            code = dialling.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and dialling.getsockname() == dialling.getpeername():
            # A dial to a port of the ephemeral range without a listener can connect to itself.
            code = errno.ECONNREFUSED
        if code != 0:
            raise OSError(code, os.strerror(code))
        return SocketConnection(dialling, address)
    except BaseException:
        dialling.close()
        raise


def _bind(family: int, address: tuple[Any, ...], *, shared: bool, both_families: bool = False) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both_families else 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _listen_everywhere(port: int, *, shared: bool) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return _bind(socket.AF_INET6, ("::", port), shared=shared, both_families=True)
        except OSError as error:
            if error.errno not in _NOT_OUR_FAMILY:
                raise
    return _bind(socket.AF_INET, ("0.0.0.0", port), shared=shared)
