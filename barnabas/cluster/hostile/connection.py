"""One connection of a hostile client: frames out, answers in, and an end whenever it likes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.cluster.hostile.requests import Drawn
from barnabas.protocol.api_keys import API_SPECS
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.framing import SIZE_BYTES, request_prefix
from barnabas.protocol.headers import ResponseHeader
from barnabas.protocol.schema import decode_prefix
from barnabas.runtime.world import Bytes, Connection, ConnectionLost

CLIENT_ID = "hostile"
_READ_BYTES = 64 << 10


class Nonsense(Exception):
    """A node answered what is no answer to its request."""


class HostileConnection:
    """Raises ConnectionLost wherever the node ends it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._asked = 0
        self._answered = 0

    def frame(self, drawn: Drawn) -> bytes:
        """The request as it goes over the wire, numbered."""
        self._asked += 1
        message = request_prefix(drawn.api, drawn.version, self._asked, CLIENT_ID) + drawn.body
        return len(message).to_bytes(SIZE_BYTES, "big") + message

    async def send(self, data: Bytes) -> None:
        left = memoryview(data)
        while left:
            sent = self._connection.send_now([left])
            left = left[sent:]
            if left:
                await self._connection.wait_writable()

    async def answer(self, drawn: Drawn) -> Any:
        """The answer to the oldest request that has none. Raises Nonsense."""
        frame = await self._frame()
        self._answered += 1
        spec = API_SPECS[drawn.api]
        try:
            header, position = decode_prefix(ResponseHeader, frame, 0, spec.response_header_version(drawn.version))
            if header.correlation_id != self._answered:
                raise Nonsense(f"{drawn}: request {self._answered} was answered as {header.correlation_id}")
            return decode_prefix(spec.response_type(), frame, position, drawn.version)[0]
        except MalformedMessage as error:
            raise Nonsense(f"{drawn} was answered with what cannot be read: {error}") from None

    async def call(self, drawn: Drawn) -> Any:
        await self.send(self.frame(drawn))
        return await self.answer(drawn)

    def expects_nothing(self) -> None:
        """The oldest request that has no answer will not get one."""
        self._answered += 1

    async def pipeline(self, requests: Sequence[Drawn]) -> None:
        """All at once; reads nothing."""
        await self.send(b"".join([self.frame(drawn) for drawn in requests]))

    def close(self) -> None:
        self._connection.close()

    async def _frame(self) -> bytes:
        size = int.from_bytes(await self._exactly(SIZE_BYTES), "big")
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            chunk = bytearray(_READ_BYTES)
            count = await self._connection.receive_into(memoryview(chunk))
            if not count:
                raise ConnectionLost("the node closed the connection")
            self._buffer += chunk[:count]
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data
