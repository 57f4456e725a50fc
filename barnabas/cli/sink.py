"""Bytes to standard output: who reads them slowly stops nobody else."""

from __future__ import annotations

import os
import sys
from io import UnsupportedOperation


async def write_out(data: bytes) -> None:
    """All of it has left when this returns; after a cancel any part of it may have. Raises BrokenPipeError if nobody
    reads any more.
    """
    import trio

    try:
        descriptor = sys.stdout.fileno()
    except (UnsupportedOperation, AttributeError):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    # Not through Python's buffer: its lock would outlive a cancelled write.
    sys.stdout.flush()
    await trio.to_thread.run_sync(_write_all, descriptor, data, abandon_on_cancel=True)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
