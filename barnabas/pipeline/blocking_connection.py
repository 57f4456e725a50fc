"""One blocking connection to one broker: a handshake, then requests and their answers in order. Knows no topics.

What the peer sends is bounded in size and in time: an answer has a deadline as a whole, however it drips, and memory
is taken only as its bytes come.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from barnabas.pipeline.addresses import Address
from barnabas.pipeline.errors import ConnectionFailed, NotSent, TimedOut, UnsupportedVersion
from protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from protocol.errors import EncodeError, ErrorCode, MalformedMessage
from protocol.framing import request_prefix
from protocol.headers import ResponseHeader
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.schema import Message, decode, decode_prefix, encode_chunks

MAX_HANDSHAKE_BYTES = 1024 * 1024
"""Of an answer before the peer has shown that it speaks the protocol."""

MAX_ANSWER_BYTES = 512 * 1024 * 1024
"""Far beyond what is asked for: a broker gives one whole batch even when that is larger than the fetch's limit."""

CONNECT_TIMEOUT_MS = 10_000


class Posted:
    """A request that was sent; its answer is still to be taken."""

    __slots__ = ("correlation_id", "deadline", "spec", "timeout_ms", "version")

    def __init__(self, spec: ApiSpec, version: int, correlation_id: int, timeout_ms: int) -> None:
        self.spec = spec
        self.version = version
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        self.deadline = time.monotonic() + timeout_ms / 1000


class BlockingConnection:
    """For one thread. After an error it is closed, and the caller opens another."""

    def __init__(self, address: Address, client_id: str, timeout_ms: int) -> None:
        """Dials and shakes hands in at most `timeout_ms`. Raises NotSent."""
        self.address = address
        self.closed = False
        self._client_id = client_id
        self._correlation_id = 0
        self._posted: deque[Posted] = deque()
        self.versions: Mapping[int, tuple[int, int]] = {}
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            self._socket = socket.create_connection(address, min(timeout_ms, CONNECT_TIMEOUT_MS) / 1000)
        except OSError as error:
            raise NotSent(f"no connection to {address}: {_reason(error)}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.versions = self._learn_versions(deadline)
        except (ConnectionFailed, TimedOut, MalformedMessage) as error:
            self.close()
            raise NotSent(
                f"no handshake with {address}: {error} (whoever listens there may not speak the protocol in the clear)"
            ) from None
        except BaseException:
            self.close()
            raise

    @property
    def is_lost(self) -> bool:
        """Whether it is closed, by us or, as far as is known, by the peer."""
        if self.closed:
            return True
        if self._posted:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        # Nothing is to come now but the end.
        return bool(poll.poll(0))

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def version_of(self, request: Message, version: int | None = None, at_most: int | None = None) -> int:
        """The highest version that both sides speak, or `version`. Raises UnsupportedVersion."""
        spec = API_SPECS[ApiKey(request.API_KEY)]
        lowest, highest = self.versions.get(spec.key, (0, -1))
        first, last = (spec.min_version, spec.max_version) if version is None else (version, version)
        if at_most is not None:
            last = min(last, at_most)
        chosen = min(highest, last)
        if chosen < max(lowest, first):
            raise UnsupportedVersion(f"{self.address} serves {spec.name} {lowest}-{highest}, wanted {first}-{last}")
        return chosen

    def call(self, request: Message, timeout_ms: int, *, version: int | None = None, at_most: int | None = None) -> Any:
        """Ask, and wait for the answer. Raises NotSent, ConnectionFailed or TimedOut."""
        return self.take(self.post(request, timeout_ms, version=version, at_most=at_most))

    def post(
        self, request: Message, timeout_ms: int, *, version: int | None = None, at_most: int | None = None
    ) -> Posted:
        """Send a request; answers are taken in the order of the requests. Raises NotSent, or TimedOut."""
        chosen = self.version_of(request, version, at_most)
        return self._send(request, chosen, timeout_ms)

    def take(self, posted: Posted) -> Any:
        """The answer to the request that was posted first. Raises ConnectionFailed or TimedOut."""
        assert self._posted[0] is posted, "answers come in the order of the requests"
        spec, version = posted.spec, posted.version
        try:
            frame = self._receive_frame(posted, MAX_ANSWER_BYTES)
            return decode(spec.response_type(), _body(frame, posted), version)
        except MalformedMessage as error:
            self.close()
            raise ConnectionFailed(f"malformed {spec.name} answer from {self.address}: {error}") from None

    # Inside

    def _send(self, request: Message, version: int, timeout_ms: int) -> Posted:
        spec = API_SPECS[ApiKey(request.API_KEY)]
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        prefix = request_prefix(spec.key, version, self._correlation_id, self._client_id)
        try:
            chunks: list[Any] = encode_chunks(request, version, prefix)
        except EncodeError as error:
            raise UnsupportedVersion(f"{spec.name} {version} at {self.address}: {error}") from None
        posted = Posted(spec, version, self._correlation_id, timeout_ms)
        size_bytes = sum(map(len, chunks))
        try:
            self._send_all([size_bytes.to_bytes(4, "big"), *chunks], posted)
        except TimeoutError:
            self.close()
            raise self._timed_out(posted) from None
        except OSError as error:
            # The peer misses the end of this frame for ever, so it cannot act on it.
            self.close()
            raise NotSent(f"lost the connection to {self.address}: {_reason(error)}") from None
        self._posted.append(posted)
        return posted

    def _send_all(self, chunks: list[Any], posted: Posted) -> None:
        if sum(map(len, chunks)) < 64 * 1024:
            chunks = [b"".join(chunks)]
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                self._allow(posted)
                view = view[self._socket.send(view) :]

    def _allow(self, posted: Posted) -> None:
        """Let the next operation of the socket take what is left of the time."""
        left = posted.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)

    def _receive_frame(self, posted: Posted, limit_bytes: int) -> memoryview:
        """Of the answer, without its size. The connection is closed unless all of it came."""
        try:
            size = int.from_bytes(self._receive(posted, 4), "big", signed=True)
            if not 4 <= size <= limit_bytes:
                raise MalformedMessage(f"an answer of {size} bytes, where {limit_bytes} are the most")
            frame = self._receive(posted, size)
            if int.from_bytes(frame[:4], "big") != posted.correlation_id:
                raise MalformedMessage("an answer to another request")
        except TimeoutError:
            self.close()
            raise self._timed_out(posted) from None
        except OSError as error:
            self.close()
            raise ConnectionFailed(f"lost the connection to {self.address}: {_reason(error)}") from None
        except BaseException:
            self.close()
            raise
        self._posted.popleft()
        return frame

    def _receive(self, posted: Posted, size: int) -> memoryview:
        # Not zeroed: pages are taken when the first byte comes into them, and each byte is written once.
        buffer = np.empty(size, dtype=np.uint8).data
        filled = 0
        while filled < size:
            self._allow(posted)
            count = self._socket.recv_into(buffer[filled:])
            if not count:
                raise ConnectionResetError("the broker closed it")
            filled += count
        return buffer

    def _timed_out(self, posted: Posted) -> TimedOut:
        # Answers keep their order, so after this one no other can be told apart.
        return TimedOut(f"{self.address} did not answer {posted.spec.name} in {posted.timeout_ms} ms")

    def _learn_versions(self, deadline: float) -> dict[int, tuple[int, int]]:
        """A peer that does not know our version of the question answers in version 0 (KIP-511)."""
        spec = API_SPECS[ApiKey.API_VERSIONS]
        ask = ApiVersionsRequest(client_software_name="barnabas-pipeline", client_software_version="0.1.0")
        for version in (spec.max_version, 0):
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            posted = self._send(ask, version, left_ms)
            body = _body(self._receive_frame(posted, MAX_HANDSHAKE_BYTES), posted)
            if int.from_bytes(body[:2], "big") != ErrorCode.UNSUPPORTED_VERSION:
                break
        response = decode(ApiVersionsResponse, body, version)
        if response.error_code != ErrorCode.NONE:
            raise MalformedMessage(f"ApiVersions answered error {response.error_code}")
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def _body(frame: memoryview, posted: Posted) -> memoryview:
    """What follows the header of an answer."""
    position = 4
    if posted.spec.response_header_version(posted.version) == 1:
        _, position = decode_prefix(ResponseHeader, frame, 0, 1)
    return frame[position:]


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return (error.strerror or str(error) or type(error).__name__).lower()
