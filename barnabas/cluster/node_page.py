"""Asks one node for a page of its own, over a connection that is kept. Answers are hostile: bounded, and JSON or
nothing.

Knows no page; a question has the time that its asker gives it.
"""

from __future__ import annotations

import json
from typing import Any

from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.world import Connection, ConnectionLost, DialFailed, DialRefused, Network

MAX_HEAD_BYTES = 16 << 10
MAX_BODY_BYTES = 8 << 20
_RECEIVE_BYTES = 64 << 10


class NoAnswer(Exception):
    """One line: why."""


class Refused(NoAnswer):
    """Nobody listens there: its process is gone, or was never there."""


class NodePage:
    """The HTTP listener of one node; one question at a time."""

    def __init__(self, network: Network, host: str, port: int, token: HttpToken | None = None) -> None:
        """`token` is sent with each question, over a connection that is not encrypted."""
        self._network = network
        self._token = token
        self.host = host
        self.port = port
        self._connection: Connection | None = None
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))

    async def get(self, target: str) -> Any:
        """The JSON of the page at `target` (`/state?topic=flights`). Raises `NoAnswer`.

        May be cancelled; then the next request opens a new connection.
        """
        kept, self._connection = self._connection, None
        if kept is not None:
            try:
                return await self._exchange(kept, target)
            except ConnectionLost:
                pass  # it was closed meanwhile, or its node was restarted: try a new connection
        try:
            connection = await self._network.dial(self.host, self.port)
        except DialRefused as error:
            raise Refused(str(error)) from None
        except DialFailed as error:
            raise NoAnswer(str(error)) from None
        try:
            return await self._exchange(connection, target)
        except ConnectionLost:
            raise NoAnswer(f"{self.host}:{self.port} closed the connection") from None

    def another(self) -> NodePage:
        """For questions to the same node over a connection of its own."""
        return NodePage(self._network, self.host, self.port, self._token)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _exchange(self, connection: Connection, target: str) -> Any:
        """Raises ConnectionLost before an answer has come. The connection is closed unless it may be used again."""
        try:
            authorization = "" if self._token is None else f"Authorization: {self._token.authorization}\r\n"
            request = f"GET {target} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n{authorization}\r\n".encode()
            sent = connection.send_now([request])
            while sent < len(request):
                await connection.wait_writable()
                sent += connection.send_now([memoryview(request)[sent:]])
            status, length, rest = await self._receive_head(connection)
            if length > MAX_BODY_BYTES:
                raise NoAnswer(f"{self.host}:{self.port} answers {length} bytes")
            while len(rest) < length:
                count = await connection.receive_into(self._buffer)
                rest += self._buffer[:count]
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        if status == 401:
            wrong = "wants a token (--http-token-file)" if self._token is None else "has another token"
            raise NoAnswer(f"{self.host}:{self.port} {wrong}")
        if status != 200:
            raise NoAnswer(f"{target.partition('?')[0]} is answered with {status}")
        try:
            return json.loads(rest[:length])
        except (ValueError, RecursionError):
            raise NoAnswer(f"{self.host}:{self.port} answers what is no JSON") from None

    async def _receive_head(self, connection: Connection) -> tuple[int, int, bytearray]:
        """Status, length of the body, and what of it came along."""
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > MAX_HEAD_BYTES:
                raise self._no_http()
            count = await connection.receive_into(self._buffer)
            data += self._buffer[:count]
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        words, length = first.split(" "), headers.get("content-length", "")
        if not first.startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit() or not _is_number(length):
            raise self._no_http()
        return int(words[1]), int(length), data[end + 4 :]

    def _no_http(self) -> NoAnswer:
        return NoAnswer(f"{self.host}:{self.port} does not speak as nodes do")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12
