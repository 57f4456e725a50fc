"""Core: where the records of a stream of ciphertext begin, by their plain headers (RFC 8446, 5.1)."""

from __future__ import annotations

HEAD_BYTES = 5


class RecordCutter:
    """Follows the records of one direction of a connection, however its bytes were cut on their way."""

    __slots__ = ("_body_bytes", "_head", "begun")

    def __init__(self) -> None:
        self._head = b""
        """The part of a header that came so far."""
        self._body_bytes = 0
        """Bytes that the record under way still needs."""
        self.begun = 0
        """Records that began since the caller set this to 0."""

    def piece_end(self, data: memoryview, start: int, most_bytes: int, most_records: int) -> int:
        """The end of the piece of `data` that begins at `start`: at most so many bytes, and no further record once
        `begun` is `most_records`. The next piece begins there."""
        position, end = start, min(len(data), start + most_bytes)
        left = self._body_bytes
        while position < end:
            if left:
                taken = left if left < end - position else end - position
                left -= taken
                position += taken
                continue
            if not self._head:
                if self.begun >= most_records:
                    break
                self.begun += 1
                if end - position >= HEAD_BYTES:
                    left = data[position + 3] << 8 | data[position + 4]
                    position += HEAD_BYTES
                    continue
            taken = min(HEAD_BYTES - len(self._head), end - position)
            self._head += data[position : position + taken]
            position += taken
            if len(self._head) == HEAD_BYTES:
                left = int.from_bytes(self._head[3:])
                self._head = b""
        self._body_bytes = left
        return position
