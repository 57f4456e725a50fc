"""Writes bytes to standard output without blocking the event loop."""

from __future__ import annotations

import os
import sys
from io import UnsupportedOperation


async def write_out(data: bytes) -> None:
    """Returns when all bytes are written; after a cancellation, any part may be. Raises `BrokenPipeError` if the
    reader is gone.
    """
    import trio

    try:
        descriptor = sys.stdout.fileno()
    except (UnsupportedOperation, AttributeError):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    # Bypasses Python's buffer, whose lock would outlive a cancelled write.
    sys.stdout.flush()
    await trio.to_thread.run_sync(_write_all, descriptor, data, abandon_on_cancel=True)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
