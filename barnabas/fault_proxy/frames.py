"""Core: finds messages in the two directions of a connection, and the API of each.

A request has its API key; a response only has a correlation id, so both directions share a `Conversation`. It reads
heads alone: bodies pass in the pieces in which they arrive. Bytes that are no Kafka frame, TLS for example, pass as one
endless message without API.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

NO_API = -1
"""API of bytes that are no frame, and of responses without a request."""
_REQUEST_HEAD = struct.Struct(">ihhi")
_RESPONSE_HEAD = struct.Struct(">ii")
_SIZE_BYTES = 4
_MOST_BYTES = 1 << 28
"""Larger than any frame. Records of TLS begin like a frame of 350 MB."""


class Message(NamedTuple):
    """The head of a request or of an answer."""

    api_key: int
    api_version: int
    correlation_id: int
    is_request: bool


class Piece(NamedTuple):
    """Some bytes of one message."""

    message: Message
    data: bytes
    begins: bool
    ends: bool


class Conversation:
    """The requests of one connection that wait for answers, in their order, which is that of the answers."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: deque[Message] = deque()

    def asked(self, message: Message) -> None:
        self._asked.append(message)

    def answered(self, correlation_id: int) -> Message:
        """The request of a response. Requests before it get none: they wanted none, or were dropped."""
        while self._asked:
            asked = self._asked.popleft()
            if asked.correlation_id == correlation_id:
                return asked._replace(is_request=False)
        return Message(NO_API, 0, correlation_id, False)

    @property
    def unanswered(self) -> int:
        return len(self._asked)


class Frames:
    """Cuts one direction into messages."""

    __slots__ = ("_conversation", "_head", "_head_bytes", "_is_request", "_left", "_message", "_opaque")

    def __init__(self, conversation: Conversation, *, is_request: bool) -> None:
        self._conversation = conversation
        self._is_request = is_request
        self._head = bytearray()
        self._head_bytes = (_REQUEST_HEAD if is_request else _RESPONSE_HEAD).size
        self._message = Message(NO_API, 0, 0, is_request)
        self._left = 0
        """Bytes of the present message that are still to come."""
        self._opaque = False

    @property
    def kept_bytes(self) -> int:
        """Bytes of a head that is not complete."""
        return len(self._head)

    @property
    def inside(self) -> bool:
        """Some of a message has come, and more is to come."""
        return self._left > 0 or bool(self._head)

    def feed(self, data: bytes) -> list[Piece]:
        """Splits bytes into pieces of messages. A head is kept back until it is complete."""
        pieces: list[Piece] = []
        position, end = 0, len(data)
        while position < end:
            if self._opaque:
                pieces.append(Piece(self._message, data[position:], False, False))
                break
            if self._left:
                taken = min(self._left, end - position)
                self._left -= taken
                pieces.append(Piece(self._message, data[position : position + taken], False, self._left == 0))
                position += taken
                continue
            wanted = self._head_bytes - len(self._head)
            self._head += data[position : position + wanted]
            position += wanted
            if len(self._head) >= self._head_bytes:
                pieces.append(self._begin(bytes(self._head)))
                self._head.clear()
        return pieces

    def rest(self) -> bytes:
        """The bytes of a head that will never be complete."""
        rest = bytes(self._head)
        self._head.clear()
        return rest

    def _begin(self, head: bytes) -> Piece:
        if self._is_request:
            size, api_key, api_version, correlation_id = _REQUEST_HEAD.unpack(head)
        else:
            size, correlation_id = _RESPONSE_HEAD.unpack(head)
        self._left = size + _SIZE_BYTES - len(head)
        if not 0 <= self._left <= _MOST_BYTES:
            self._opaque, self._left = True, 0
            self._message = Message(NO_API, 0, 0, self._is_request)
            return Piece(self._message, head, True, False)
        if self._is_request:
            self._message = Message(api_key, api_version, correlation_id, True)
            self._conversation.asked(self._message)
        else:
            self._message = self._conversation.answered(correlation_id)
        return Piece(self._message, head, True, self._left == 0)


class TooLong(Exception):
    """A frame is longer than the proxy keeps, or the bytes are no frame."""


class WholeFrames:
    """Cuts one direction into whole frames, without their sizes."""

    __slots__ = ("_buffer", "_most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._buffer = bytearray()
        self._most_bytes = most_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete. Raises `TooLong`."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        position = 0
        while len(buffer) - position >= _SIZE_BYTES:
            size = int.from_bytes(buffer[position : position + _SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= self._most_bytes:
                raise TooLong(f"a frame of {size} bytes; at most {self._most_bytes} are allowed")
            end = position + _SIZE_BYTES + size
            if end > len(buffer):
                break
            found.append(bytes(memoryview(buffer)[position + _SIZE_BYTES : end]))
            position = end
        if position:
            del buffer[:position]
        return found
