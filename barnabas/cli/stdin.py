"""Reads records from standard input without blocking the event loop."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from io import UnsupportedOperation

from barnabas.cluster.errors import ClusterError

CHUNK_BYTES = 1 << 16
LONGEST_BYTES = 1 << 27
"""Limit for one record; no broker accepts a larger one."""


async def pieces(delimiter: bytes) -> AsyncIterator[bytes]:
    """Yields the pieces between delimiters on standard input, and a non-empty rest without one.

    If the delimiter is a line feed, a carriage return before it is removed. After a cancellation, a thread that waits
    for input remains. Raises `ClusterError` for a piece longer than `LONGEST_BYTES`.
    """
    rest = bytearray()
    searched = 0
    while chunk := await _read():
        rest += chunk
        if rest.find(delimiter, searched) < 0:
            if len(rest) > LONGEST_BYTES:
                raise ClusterError(f"no {delimiter!r} in {len(rest)} bytes of input")
            searched = max(0, len(rest) - len(delimiter) + 1)
            continue
        parts = bytes(rest).split(delimiter)
        rest = bytearray(parts.pop())
        searched = 0
        for part in parts:
            yield _line(part, delimiter)
    if rest:
        yield _line(bytes(rest), delimiter)


def _line(part: bytes, delimiter: bytes) -> bytes:
    return part.removesuffix(b"\r") if delimiter == b"\n" else part


async def _read() -> bytes:
    """Reads some bytes, none at the end. Bypasses Python's buffer, whose lock would outlive a cancelled read."""
    import trio

    try:
        descriptor = sys.stdin.fileno()
    except (UnsupportedOperation, AttributeError):
        return sys.stdin.buffer.read(CHUNK_BYTES)
    return await trio.to_thread.run_sync(os.read, descriptor, CHUNK_BYTES, abandon_on_cancel=True)
