"""The directory of a development node: one of the user's, or one in memory that ends with the node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from barnabas.cluster.errors import ClusterError

_MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one."""
_PREFIX = "barnabas-dev-"
_OWNER = "owner"
"""A file that its node locks: a directory whose file nobody locks is left over from a node that was killed."""


@contextlib.contextmanager
def data_directory(kept: Path | None) -> Iterator[Path]:
    """The directory of a node's data: `kept`, or one in memory that is removed at the end. Raises `ClusterError`."""
    try:
        if kept is not None:
            kept.mkdir(parents=True, exist_ok=True)
            yield kept.absolute()
            return
        parent = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        remove_left_over(parent)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise ClusterError(f"{error.filename or kept}: {error.strerror}") from None
    descriptor = os.open(made / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


def remove_left_over(parent: Path) -> None:
    """Remove directories of nodes that were killed."""
    for found in parent.glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(found / _OWNER, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # one that is being made, or of another user
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(found, ignore_errors=True)
        except BlockingIOError:
            pass  # its node runs
        finally:
            os.close(descriptor)
