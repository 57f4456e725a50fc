"""Incoming frames (int32 size, then that many bytes), cut out of one connection. Knows nothing of their content.

Small frames are over-read, many at once, into a scratch buffer and copied out; the missing part of a large one is read
straight into its place. Every frame is a bytearray of its own, so its reader may keep it, change it or slice it freely.
"""

from __future__ import annotations

from barnabas.runtime.world import Connection

SCRATCH_BYTES = 128 * 1024
EXACT_READ_BYTES = 32 * 1024
"""A frame with at least this many missing bytes is read into its place; below, over-reading saves a call for the
next."""

TRUSTED_BYTES = 64 * 1024
"""The memory that a frame gets before any of it has arrived. A larger one doubles it as its bytes arrive."""

MOST_TRUSTED_BYTES = 2 * 1024 * 1024
"""The same for a connection that completed frames of that size before: growing in steps copies what is there."""


HTTP_SIZE = int.from_bytes(b"HTTP")
"""Size of the frame that the first bytes of an HTTP response seem to announce."""

TLS_SIZES = frozenset({*range(0x160300, 0x160304), *range(0x150300, 0x150304)})
"""The same, without the last byte, for the first bytes of a TLS handshake, and of a TLS alert."""


class FrameError(Exception):
    """The peer announced a frame with a negative or too large size; its further bytes mean nothing."""

    def __init__(self, size: int, most_bytes: int) -> None:
        super().__init__(f"the size of a frame must be 0 to {most_bytes} bytes; got {size}")
        self.is_http = size == HTTP_SIZE
        self.is_tls = size >> 8 in TLS_SIZES


class FrameReader:
    """Cuts one connection into frames.

    `scratch` may be shared by many readers: bytes stay in it only between the end of a receive and the end of
    the `read` around it, and nothing awaits in between.
    """

    __slots__ = ("_filled", "_head", "_partial", "_scratch", "_size", "_trusted", "connection", "max_frame_bytes")

    def __init__(self, connection: Connection, max_frame_bytes: int, scratch: bytearray) -> None:
        self.connection = connection
        self.max_frame_bytes = max_frame_bytes
        """May be changed while no frame is under way."""
        self._scratch = memoryview(scratch)
        self._trusted = TRUSTED_BYTES
        self._partial: bytearray | None = None
        """The frame under way; it holds `_filled` of its `_size` bytes and has room for at least one more."""
        self._size = 0
        self._filled = 0
        self._head = b""
        """0 to 3 bytes of the next frame's size; never any while a frame is under way."""

    @property
    def held_bytes(self) -> int:
        """The memory of the frame under way."""
        return 0 if self._partial is None else len(self._partial)

    def forget(self) -> None:
        """Release the frame under way: the connection is closed."""
        self._partial = None

    async def read(self) -> list[bytearray]:
        """Receive once and return the frames that are complete now, in order; perhaps none.

        Raises ConnectionLost at the end and FrameError for a bad size.
        """
        partial = self._partial
        if partial is not None and self._size - self._filled >= EXACT_READ_BYTES:
            with memoryview(partial) as whole, whole[self._filled :] as rest:
                self._filled += await self.connection.receive_into(rest)
            if self._filled == self._size:
                self._partial = None
                self._trusted = min(MOST_TRUSTED_BYTES, max(self._trusted, self._size))
                return [partial]
            self._make_room(partial)
            return []
        received = self._scratch[4:]
        count = await self.connection.receive_into(received)
        return self._cut(received[:count])

    def _cut(self, received: memoryview) -> list[bytearray]:
        frames: list[bytearray] = []
        position, end = 0, len(received)
        partial = self._partial
        if partial is not None:
            position = min(self._size - self._filled, end)
            self._fill(partial, received[:position])
            if self._filled < self._size:
                return frames
            frames.append(partial)
            self._partial = None
        elif self._head:
            # The size's first bytes came earlier: put them back in front, where room was left for them.
            start = 4 - len(self._head)
            self._scratch[start:4] = self._head
            received = self._scratch[start : 4 + end]
            end = len(received)
        while end - position >= 4:
            size = int.from_bytes(received[position : position + 4], "big", signed=True)
            if not 0 <= size <= self.max_frame_bytes:
                raise FrameError(size, self.max_frame_bytes)
            position += 4
            if size > end - position:
                self._start(size, received[position:])
                self._head = b""
                return frames
            frames.append(bytearray(received[position : position + size]))
            position += size
        self._head = bytes(received[position:])
        return frames

    def _start(self, size: int, first: memoryview) -> None:
        partial = bytearray(min(size, self._trusted))
        self._partial, self._size, self._filled = partial, size, 0
        self._fill(partial, first)

    def _fill(self, partial: bytearray, data: memoryview) -> None:
        self._filled += len(data)
        if self._filled > len(partial):  # over-read past what was trusted so far
            partial.extend(bytes(self._filled - len(partial)))
        partial[self._filled - len(data) : self._filled] = data
        self._make_room(partial)

    def _make_room(self, partial: bytearray) -> None:
        if self._filled == len(partial) < self._size:
            partial.extend(bytes(min(len(partial), self._size - len(partial))))
