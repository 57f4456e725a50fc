"""One bounded HTTP exchange, with an OAuth provider or a schema registry. Blocks: run it by `World.run_blocking`."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

CONNECT_SECONDS = 5
EXCHANGE_SECONDS = 10
"""From the connection to the last byte of the response."""
MOST_RESPONSE_BYTES = 1 << 20

_FINAL = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})
"""Kafka does not repeat a request that was answered so."""


class HttpFailed(Exception):
    """No response that can be used. The text contains nothing of the request but its URL."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final
        """The same request would fail again."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET, or a POST if there is a body."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """For https; None: the certificate authorities of the system."""
    seconds: float = EXCHANGE_SECONDS
    connect_seconds: float = CONNECT_SECONDS
    method: str = ""
    """Without it GET, or POST if there is a body."""
    most_bytes: int = MOST_RESPONSE_BYTES
    """The longest body of a response."""


class HttpAnswer(NamedTuple):
    """A response, whatever its status."""

    status: int
    body: bytes


def exchange(request: HttpRequest) -> bytes:
    """Send the request and return the body of the response. Raises HttpFailed, also for a status that is no success."""
    answer = answer_of(request)
    if answer.status not in (200, 201):
        raise HttpFailed(f"{_shown(request.url)}: status {answer.status}", final=answer.status in _FINAL)
    return answer.body


def answer_of(request: HttpRequest) -> HttpAnswer:
    """Send the request and return the response. Raises HttpFailed. Follows no redirects: they would lead a secret to a
    place that is not in the settings."""
    connection = _connection(request)
    try:
        return _answer(connection, request)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # The text of an IncompleteRead counts bytes, and does not show them.
        raise HttpFailed(f"{_shown(request.url)}: {str(error) or type(error).__name__}") from None
    finally:
        connection.close()


def _connection(request: HttpRequest) -> http.client.HTTPConnection:
    try:
        parts = urlsplit(request.url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise HttpFailed(f"{error}", final=True) from None
    if parts.scheme not in ("http", "https") or not host:
        raise HttpFailed(f"{_shown(request.url)}: not a URL of HTTP", final=True)
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=request.connect_seconds)
    tls = request.tls or ssl.create_default_context()
    return http.client.HTTPSConnection(host, port, timeout=request.connect_seconds, context=tls)


def _answer(connection: http.client.HTTPConnection, request: HttpRequest) -> HttpAnswer:
    connection.connect()
    line = connection.sock
    line.settimeout(2 * request.seconds)
    # A peer that sends a byte now and then would satisfy the timeouts of the socket for ever.
    over = threading.Event()
    deadline = threading.Timer(request.seconds, _shut_down, [line, over])
    deadline.daemon = True
    deadline.start()
    try:
        parts = urlsplit(request.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        method = request.method or ("GET" if request.body is None else "POST")
        connection.request(method, target, request.body, dict(request.headers))
        response = connection.getresponse()
        body = response.read(request.most_bytes + 1)
        if len(body) > request.most_bytes:
            raise HttpFailed(f"{_shown(request.url)}: a response of more than {request.most_bytes} bytes", final=True)
        if over.is_set() or response.length:
            raise http.client.IncompleteRead(body)
        return HttpAnswer(response.status, body)
    except (OSError, http.client.HTTPException):
        if over.is_set():
            raise TimeoutError(f"no complete response in {request.seconds} s") from None
        raise
    finally:
        deadline.cancel()


def _shut_down(line: socket.socket, over: threading.Event) -> None:
    over.set()
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # It has ended already.


def _shown(url: str) -> str:
    """A URL without a user's name and password, and without its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
