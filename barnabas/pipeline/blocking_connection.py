"""One blocking connection to one broker. The protocol is `protocol.client_exchange`, shared with the trio client.

Everything that the peer sends is bounded in size and in time: a response has one deadline, however slowly its bytes
arrive, and memory is taken only for bytes that arrived.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from typing import Any, NoReturn

import numpy as np

from barnabas.client.errors import SslAuthenticationException
from barnabas.pipeline.addresses import Address
from barnabas.pipeline.blocking_security import BlockingSecurity
from barnabas.pipeline.errors import ConnectionFailed, NotSent, TimedOut, UnsupportedVersion
from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.client_exchange import (
    MAX_HANDSHAKE_BYTES,
    Handshake,
    NoCommonVersion,
    RequestEncoder,
    Versions,
    choose_version,
    decode_response,
    response_body,
)
from barnabas.protocol.errors import EncodeError, MalformedMessage
from barnabas.protocol.framing import frame
from barnabas.protocol.schema import Message
from barnabas.runtime.frames import TLS_SIZES
from barnabas.runtime.tls.reasons import reason_of

CLIENT_SOFTWARE_NAME = "barnabas-pipeline"

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
"""Far above any requested size: a broker returns one whole batch even if it exceeds the limit of the fetch."""

CONNECT_TIMEOUT_MS = 10_000
_JOINED_BYTES = 64 * 1024
"""Smaller requests are joined and sent with one call."""


class PendingRequest:
    """A request that was sent and whose response is not yet received."""

    __slots__ = ("correlation_id", "deadline", "spec", "timeout_ms", "version")

    def __init__(self, spec: ApiSpec, version: int, correlation_id: int, timeout_ms: int) -> None:
        self.spec = spec
        self.version = version
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        self.deadline = time.monotonic() + timeout_ms / 1000


class BlockingConnection:
    """For use by one thread. After an error it is closed, and the caller opens another."""

    def __init__(
        self, address: Address, client_id: str, timeout_ms: int, security: BlockingSecurity | None = None
    ) -> None:
        """Connects, secures the connection and performs the handshake within `timeout_ms`. Raises NotSent, and
        KafkaError if the broker does not accept the credentials."""
        self.address = address
        self.closed = False
        self._requests = RequestEncoder(client_id)
        self._pending: deque[PendingRequest] = deque()
        self.versions: Versions = {}
        self._renew_at: float | None = None
        """Time after which the session ends."""
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            self._socket = socket.create_connection(address, min(timeout_ms, CONNECT_TIMEOUT_MS) / 1000)
        except OSError as error:
            raise NotSent(f"no connection to {address}: {_reason(error)}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None:
                self._socket = security.secure(self._socket, address, deadline)
            self.versions = self._handshake(deadline)
            if security is not None:
                self._renew_at = security.authenticate(self, deadline)
        except (ConnectionFailed, TimedOut, MalformedMessage) as error:
            self.close()
            if isinstance(error.__context__, ssl.SSLError) and error.__context__.reason:
                # After a handshake of TLS 1.3 a broker says so that it wants, or does not trust, a certificate.
                reason = reason_of(error.__context__)
                raise SslAuthenticationException(f"TLS handshake with {address} failed: {reason}") from None
            hint = "" if security is not None else " (is this a Kafka listener without TLS and SASL?)"
            raise NotSent(f"no handshake with {address}: {error}{hint}") from None
        except BaseException:
            self.close()
            raise

    @property
    def is_lost(self) -> bool:
        """True if it is closed, by this side or, as far as is known, by the broker, or its session is about to end."""
        if self.closed:
            return True
        if self._pending:
            return False
        if self._renew_at is not None and time.monotonic() > self._renew_at:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        # No response is pending, so the only thing to read is the end of the stream, or a message of TLS itself.
        return bool(poll.poll(0)) and (not isinstance(self._socket, ssl.SSLSocket) or _has_ended(self._socket))

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def call(self, request: Message, timeout_ms: int, *, version: int | None = None, at_most: int | None = None) -> Any:
        """Send a request and return its response. Raises NotSent, ConnectionFailed or TimedOut."""
        return self.receive(self.send(request, timeout_ms, version=version, at_most=at_most))

    def send(
        self, request: Message, timeout_ms: int, *, version: int | None = None, at_most: int | None = None
    ) -> PendingRequest:
        """Send a request in the highest common version, at most `at_most`, or in `version`. Raises NotSent or TimedOut.

        Responses are received in the order of the requests.
        """
        spec = API_SPECS[ApiKey(request.API_KEY)]
        try:
            chosen = choose_version(self.versions, spec, version, at_most)
        except NoCommonVersion as error:
            raise UnsupportedVersion(f"{self.address} {error}") from None
        return self._send(spec, chosen, request, timeout_ms)

    def receive(self, pending: PendingRequest) -> Any:
        """The response to the oldest pending request. Raises ConnectionFailed or TimedOut."""
        spec = pending.spec
        try:
            received = self._receive_frame(pending, MAX_RESPONSE_BYTES)
            return decode_response(received, spec, pending.version)
        except MalformedMessage as error:
            self.close()
            raise ConnectionFailed(f"malformed {spec.name} response from {self.address}: {error}") from None

    def _handshake(self, deadline: float) -> Versions:
        handshake = Handshake(CLIENT_SOFTWARE_NAME)
        while not handshake.done:
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            pending = self._send(handshake.spec, handshake.version, handshake.request, left_ms)
            received = self._receive_frame(pending, MAX_HANDSHAKE_BYTES)
            handshake.receive(response_body(received, pending.spec, pending.version))
        return handshake.versions

    def _send(self, spec: ApiSpec, version: int, request: Message, timeout_ms: int) -> PendingRequest:
        try:
            correlation_id, chunks = self._requests.encode(spec, version, request)
        except EncodeError as error:
            raise UnsupportedVersion(f"{spec.name} {version} at {self.address}: {error}") from None
        pending = PendingRequest(spec, version, correlation_id, timeout_ms)
        try:
            self._send_all(frame(chunks), pending)
        except TimeoutError:
            self._give_up(pending)
        except OSError as error:
            # The broker cannot act on a frame whose end it never gets.
            self.close()
            raise NotSent(f"lost the connection to {self.address}: {_reason(error)}") from None
        self._pending.append(pending)
        return pending

    def _send_all(self, chunks: list[Any], pending: PendingRequest) -> None:
        if sum(map(len, chunks)) < _JOINED_BYTES:
            chunks = [b"".join(chunks)]
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                self._limit_time(pending)
                view = view[self._socket.send(view) :]

    def _receive_frame(self, pending: PendingRequest, limit_bytes: int) -> memoryview:
        """The frame without its size. The connection is closed unless the whole frame is received."""
        assert self._pending[0] is pending, "responses are received in the order of the requests"
        try:
            size = int.from_bytes(self._receive_bytes(pending, 4), "big", signed=True)
            if size >> 8 in TLS_SIZES and not self.versions:
                raise SslAuthenticationException(
                    f"{self.address} speaks TLS on this port; use security.protocol=SSL or SASL_SSL"
                )
            if not 4 <= size <= limit_bytes:
                raise MalformedMessage(f"response size must be 4 to {limit_bytes} bytes; got {size}")
            received = self._receive_bytes(pending, size)
            if int.from_bytes(received[:4], "big") != pending.correlation_id:
                raise MalformedMessage("a response to another request")
        except TimeoutError:
            self._give_up(pending)
        except OSError as error:
            self.close()
            raise ConnectionFailed(f"lost the connection to {self.address}: {_reason(error)}") from None
        except BaseException:
            self.close()
            raise
        self._pending.popleft()
        return received

    def _receive_bytes(self, pending: PendingRequest, size: int) -> memoryview:
        # Not zeroed: the system provides a page when its first byte is written, and each byte is written once.
        buffer = np.empty(size, dtype=np.uint8).data
        filled = 0
        while filled < size:
            self._limit_time(pending)
            count = self._socket.recv_into(buffer[filled:])
            if not count:
                raise ConnectionResetError("closed by the broker")
            filled += count
        return buffer

    def _limit_time(self, pending: PendingRequest) -> None:
        """Limit the next socket operation to the time that is left."""
        left = pending.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)

    def _give_up(self, pending: PendingRequest) -> NoReturn:
        # Responses keep their order, so no later response could be received either.
        self.close()
        timeout_ms = pending.timeout_ms
        raise TimedOut(f"{self.address} did not answer {pending.spec.name} in {timeout_ms} ms") from None


def _has_ended(connection: ssl.SSLSocket) -> bool:
    connection.settimeout(0)
    try:
        connection.recv(1)
    except ssl.SSLWantReadError:
        return False
    except OSError:
        return True
    return True


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return (error.strerror or str(error) or type(error).__name__).lower()
