"""A client without manners: blocking sockets, and frames as the attacker wants them.

Every wait ends at a deadline, so that a frozen broker costs an attack its time and no more.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.headers import RequestHeader, ResponseHeader
from barnabas.protocol.schema import Message, decode_prefix, encode

HOST = "127.0.0.1"
NONE = 0
"""The error code of success."""


def frame(request: Message, version: int, *, client_id: str = "attacker", correlation_id: int = 1) -> bytes:
    """A request as it goes over the wire."""
    spec = API_SPECS[ApiKey(request.API_KEY)]
    header = RequestHeader(
        request_api_key=request.API_KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    body = encode(header, spec.request_header_version(version)) + encode(request, version)
    return struct.pack(">i", len(body)) + body


def batch(payload: bytes, count: int, codec: int = 0, last_offset_delta: int | None = None) -> bytes:
    """A record batch with a valid head and CRC, whatever its payload is."""
    now_ms = time.time_ns() // 1_000_000
    last = count - 1 if last_offset_delta is None else last_offset_delta
    tail = struct.pack(">hiqqqhii", codec, last, now_ms, now_ms, -1, -1, -1, count) + payload
    rest = struct.pack(">ibI", 0, 2, crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(rest)) + rest


class Peer:
    """One connection to a broker."""

    def __init__(self, port: int, until: Callable[[], float], *, receive_buffer_bytes: int = 0) -> None:
        """`until` gives the time (monotonic) after which nothing waits."""
        self._until = until
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(self._patience())
        try:
            self.socket.connect((HOST, port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.settimeout(self._patience())
        self.socket.sendall(data)

    def send_for(self, data: bytes, seconds: float) -> int:
        """Sends what the peer takes within that time; gives the number of bytes."""
        self.socket.setblocking(False)
        end = min(time.monotonic() + seconds, self._until())
        sent = 0
        while sent < len(data) and time.monotonic() < end:
            try:
                sent += self.socket.send(data[sent : sent + 65536])
            except BlockingIOError:
                time.sleep(0.005)
        return sent

    def wait_arrived(self, seconds: float) -> bool:
        """Waits until the machine of the peer has all that was sent: it learns of a close only after that. False if it
        has not taken everything within the time."""
        end = min(time.monotonic() + seconds, self._until())
        while time.monotonic() < end:
            (left,) = struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))
            if not left:
                return True
            time.sleep(0.005)
        return False

    def receive(self, kind: type[Message], version: int) -> Any:
        """The next answer, which is of this kind."""
        spec = API_SPECS[ApiKey(kind.API_KEY)]
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        _, position = decode_prefix(ResponseHeader, data, 0, spec.response_header_version(version))
        return decode_prefix(spec.response_type(), data, position, version)[0]

    def swallow(self) -> int:
        """The next answer, of which only the size is of interest."""
        (size,) = struct.unpack(">I", self._exactly(4))
        left: int = size
        while left:
            left -= len(self._some(min(left, 1 << 20)))
        return int(size)

    def call(self, request: Message, version: int, **options: Any) -> Any:
        self.send(frame(request, version, **options))
        return self.receive(type(request), version)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            received += self._some(min(size - len(received), 1 << 20))
        return bytes(received)

    def _some(self, most: int) -> bytes:
        self.socket.settimeout(self._patience())
        data = self.socket.recv(most)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        return data

    def _patience(self) -> float:
        left = self._until() - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time of the attack is over")
        return left
