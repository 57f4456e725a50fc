"""Memory that processes share by a file."""

from __future__ import annotations

import mmap
import os
from pathlib import Path


def map_shared(path: Path, size_bytes: int) -> mmap.mmap:
    """The first bytes of the file. It is created with zeros; several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if os.fstat(descriptor).st_size < size_bytes:
            os.ftruncate(descriptor, size_bytes)
        return mmap.mmap(descriptor, size_bytes)
    finally:
        os.close(descriptor)
