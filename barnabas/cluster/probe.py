"""Asks a node one question over a plain blocking socket: cheap enough to poll while a cluster starts.

For questions between people and their own cluster; programs use `barnabas.client`.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.headers import RequestHeader, ResponseHeader
from barnabas.protocol.schema import Message, decode, decode_prefix, encode

Response = TypeVar("Response", bound=Message)

LOOPBACK = "127.0.0.1"
_MOST_BYTES = 64 << 20
_correlation_ids = count(1)


class NoAnswer(Exception):
    """The node does not listen, does not answer in time, or answers something else."""


@dataclass(frozen=True, slots=True)
class Key:
    """Opens the listener for client certificates of a secure cluster, `ports_above` that of PLAINTEXT."""

    key_file: Path
    """PEM file with a key and its certificate."""
    authority_file: Path
    ports_above: int


def ask(
    port: int,
    request: Message,
    response_type: type[Response],
    timeout_seconds: float = 2.0,
    key: Key | None = None,
) -> Response:
    """The answer of the node whose PLAINTEXT listener has this machine's `port`. Raises `NoAnswer`."""
    spec = API_SPECS[ApiKey(request.API_KEY)]
    version = spec.max_version
    correlation_id = next(_correlation_ids)
    header = RequestHeader(
        request_api_key=int(request.API_KEY),
        request_api_version=version,
        correlation_id=correlation_id,
        client_id="barnabas-cluster",
    )
    message = encode(header, spec.request_header_version(version)) + encode(request, version)
    try:
        with _connected(port, timeout_seconds, key) as connection:
            connection.sendall(len(message).to_bytes(4, "big") + message)
            size = int.from_bytes(_receive(connection, 4), "big")
            if size > _MOST_BYTES:
                raise NoAnswer(f"port {port} answers {size} bytes; is that a Kafka node?")
            answer = _receive(connection, size)
        found: Any
        found, position = decode_prefix(ResponseHeader, answer, 0, spec.response_header_version(version))
        if found.correlation_id != correlation_id:
            raise NoAnswer(f"port {port} answers another request")
        return decode(response_type, answer[position:], version)
    except OSError as error:
        raise NoAnswer(f"port {port}: {error}") from None
    except MalformedMessage as error:
        raise NoAnswer(f"port {port} answers what is no {response_type.__name__}: {error}") from None


def _connected(port: int, timeout_seconds: float, key: Key | None) -> socket.socket:
    if key is None:
        return socket.create_connection((LOOPBACK, port), timeout_seconds)
    connection = socket.create_connection((LOOPBACK, port + key.ports_above), timeout_seconds)
    try:
        return _context(key).wrap_socket(connection, server_hostname=LOOPBACK)
    except OSError:
        connection.close()
        raise


@lru_cache(maxsize=4)
def _context(key: Key) -> ssl.SSLContext:
    """Questions are asked every few milliseconds, and the files do not change. Raises OSError."""
    context = ssl.create_default_context(cafile=key.authority_file)
    context.load_cert_chain(key.key_file)
    return context


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise NoAnswer("the node closed the connection")
        received += piece
    return bytes(received)
