"""A small HTTP server for the pages of a node: GET and HEAD, HTTP/1.1, no uploads.

`Reader` is the core: bytes in, requests out. `HttpServer` moves them over the network. The content of pages is the
handler's. Clients may be hostile: heads are bounded, in bytes and in time, and if all connections are taken, a new one
gets the place of another.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import trio

from barnabas.runtime.world import Bytes, Connection, ConnectionLost, Listener, World

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16 << 10
MAX_CONNECTIONS = 64
IDLE_SECONDS = 75.0
"""Longest pause between requests, and longest wait for a peer that does not read its response."""
HEAD_SECONDS = 10.0
"""Longest time in which a request may arrive, from its first byte; the first request, from the start of the
connection."""
ACCEPT_RETRY_SECONDS = 0.1
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class HttpRequest(NamedTuple):
    """One GET or HEAD request."""

    method: str
    path: str
    """Decoded, without the query: `/metrics`."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to a request."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
        return cls(text.encode(), TEXT, status)


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Serves GET and HEAD. An exception of it ends the node, as anywhere."""


class BadRequest(Exception):
    """The bytes are not a request that this server serves; the connection ends after the response."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Reader:
    """Cuts the requests of one connection out of its bytes. A core."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        """No byte of a next request has arrived."""
        return not self._buffer

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self._buffer += data

    def next(self) -> HttpRequest | None:
        """The next request, if its head is complete. Raises `BadRequest`; at once if the bytes begin no request: then
        a client of another protocol, such as Kafka's, learns quickly that it has the wrong port.
        """
        if self._buffer and not chr(self._buffer[0]).isalpha():
            raise BadRequest(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HEAD_BYTES):
            raise BadRequest(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request head must have at most {MAX_HEAD_BYTES} bytes"
            )
        if end < 0:
            return None
        head = self._buffer[:end].decode("latin-1")
        del self._buffer[: end + 4]
        return _parse(head)


def _parse(head: str) -> HttpRequest:
    first, *lines = head.split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0") or not parts[1].startswith("/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header without a name")
        headers[name.lower()] = value.strip()
    if parts[0] not in ("GET", "HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered here")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "a request with a body")
    try:
        target = urlsplit(parts[1])
    except ValueError:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "not a path") from None
    stays = headers.get("connection", "").lower()
    keep_alive = stays == "keep-alive" if parts[2] == "HTTP/1.0" else stays != "close"
    return HttpRequest(parts[0], unquote(target.path), dict(parse_qsl(target.query)), headers, keep_alive)


def render(response: HttpResponse, *, with_body: bool = True, keep_alive: bool = True) -> bytes:
    """The bytes of an answer."""
    status = response.status
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        *(f"{name}: {value}" for name, value in response.headers.items()),
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (response.body if with_body else b"")


@dataclass(slots=True, eq=False)
class _Visitor:
    """One connection."""

    connection: Connection
    waits_since: float | None
    """Start of the wait for the peer to send or to read, by trio's clock; None while its request is handled."""


class HttpServer:
    """One listener and its connections."""

    def __init__(self, world: World, handler: HttpHandler) -> None:
        self._world = world
        self._handler = handler
        self._visitors: dict[_Visitor, None] = {}

    async def serve(self, listener: Listener) -> None:
        """Until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        connection = await listener.accept()
                    except ConnectionLost:
                        return
                    except OSError as error:
                        log.error("cannot accept: %s", error)
                        await trio.sleep(ACCEPT_RETRY_SECONDS)
                        continue
                    if len(self._visitors) >= MAX_CONNECTIONS:
                        self._make_room()
                    visitor = _Visitor(connection, trio.current_time())
                    self._visitors[visitor] = None
                    nursery.start_soon(self._serve_connection, visitor)
        finally:
            listener.close()

    def _make_room(self) -> None:
        """Close one connection of the host that has most: the one that has waited longest for its peer."""
        hosts = Counter(each.connection.peer_host for each in self._visitors)

        def claim(visitor: _Visitor) -> tuple[bool, int, float]:
            since = visitor.waits_since
            return since is None, -hosts[visitor.connection.peer_host], since or 0.0

        victim = min(self._visitors, key=claim)
        del self._visitors[victim]
        victim.connection.close()

    async def _serve_connection(self, visitor: _Visitor) -> None:
        try:
            await self._converse(visitor)
        except ConnectionLost:
            pass  # the client is gone, and may ask again
        finally:
            self._visitors.pop(visitor, None)
            visitor.connection.close()

    async def _converse(self, visitor: _Visitor) -> None:
        connection, reader, buffer = visitor.connection, Reader(), bytearray(4096)
        deadline = trio.current_time() + HEAD_SECONDS
        while True:
            try:
                request = reader.next()
            except BadRequest as error:
                response = HttpResponse.text(f"{error}\n", error.status)
                await self._send(connection, render(response, keep_alive=False))
                return
            if request is not None:
                visitor.waits_since = None
                response = await self._handler(request)
                visitor.waits_since = trio.current_time()
                rendered = render(response, with_body=request.method == "GET", keep_alive=request.keep_alive)
                if not await self._send(connection, rendered) or not request.keep_alive:
                    return
                visitor.waits_since = trio.current_time()
                deadline = trio.current_time() + (IDLE_SECONDS if reader.is_empty else HEAD_SECONDS)
                continue
            begins = reader.is_empty
            with trio.move_on_at(deadline) as patience:
                count = await connection.receive_into(memoryview(buffer))
            if patience.cancelled_caught:
                return
            reader.feed(memoryview(buffer)[:count])
            if begins:
                deadline = min(deadline, trio.current_time() + HEAD_SECONDS)

    async def _send(self, connection: Connection, data: Bytes) -> bool:
        """False if the peer does not read it in time."""
        rest = memoryview(data)
        with trio.move_on_after(IDLE_SECONDS):
            while rest:
                sent = connection.send_now([rest])
                rest = rest[sent:]
                if rest:
                    await connection.wait_writable()
            return True
        return False
