"""A small HTTP server for what a node tells of itself: GET and HEAD, HTTP/1.1, nothing is uploaded.

`Reader` is the core: bytes in, requests out. `HttpServer` moves them over a node's network. Knows no page: what is told
is its handler's. Whoever asks is hostile: heads are bounded, and so are connections and their patience.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import trio

from runtime.world import Bytes, Connection, ConnectionLost, Listener, World

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16 << 10
MAX_CONNECTIONS = 64
IDLE_SECONDS = 75.0
"""How long a connection may say nothing, or not read what it is told."""
ACCEPT_RETRY_SECONDS = 0.1
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class HttpRequest(NamedTuple):
    """What somebody asks for."""

    method: str
    path: str
    """Decoded, without the query: `/metrics`."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What it is told."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
        return cls(text.encode(), TEXT, status)


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Is asked for GET and HEAD only. What it raises ends the node, as anywhere."""


class BadRequest(Exception):
    """What came is no request that is answered here; the connection ends after the answer."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Reader:
    """One connection's requests, cut out of its bytes. A core."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self._buffer += data

    def next(self) -> HttpRequest | None:
        """The next request, if all of its head is here. Raises `BadRequest`."""
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HEAD_BYTES):
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes of head")
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


class HttpServer:
    """One listener and its connections."""

    def __init__(self, world: World, handler: HttpHandler) -> None:
        self._world = world
        self._handler = handler
        self._open = 0

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
                    if self._open >= MAX_CONNECTIONS:
                        connection.close()
                        continue
                    self._open += 1
                    nursery.start_soon(self._serve_connection, connection)
        finally:
            listener.close()

    async def _serve_connection(self, connection: Connection) -> None:
        try:
            await self._converse(connection)
        except ConnectionLost:
            pass  # whoever asked is gone, and may ask again
        finally:
            self._open -= 1
            connection.close()

    async def _converse(self, connection: Connection) -> None:
        reader, buffer = Reader(), bytearray(4096)
        while True:
            try:
                request = reader.next()
            except BadRequest as error:
                response = HttpResponse.text(f"{error}\n", error.status)
                await self._send(connection, render(response, keep_alive=False))
                return
            if request is not None:
                response = await self._handler(request)
                rendered = render(response, with_body=request.method == "GET", keep_alive=request.keep_alive)
                if not await self._send(connection, rendered) or not request.keep_alive:
                    return
                continue
            with trio.move_on_after(IDLE_SECONDS) as patience:
                count = await connection.receive_into(memoryview(buffer))
            if patience.cancelled_caught:
                return
            reader.feed(memoryview(buffer)[:count])

    async def _send(self, connection: Connection, data: Bytes) -> bool:
        """False if nobody takes it."""
        rest = memoryview(data)
        with trio.move_on_after(IDLE_SECONDS):
            while rest:
                sent = connection.send_now([rest])
                rest = rest[sent:]
                if rest:
                    await connection.wait_writable()
            return True
        return False
