"""A bound on the files that all logs of a node keep open: there may be more logs than descriptors.

A holder opens its file through `open_for` and may lose it between any two calls; it opens it again when it needs it.
The file that was opened first goes first: an order by last use would cost every append, and a file that is opened
again goes to the end. Dropping a file does not close it for those who still use it (a region on its way to a socket, a
sync in another thread): its descriptor is closed with the last reference.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import Protocol

from barnabas.runtime.world import Disk, File

UNBOUNDED = 1 << 62
DROPPED_WHEN_SHORT = 64
"""Files that are dropped at once when the process has no descriptor left."""
SHARE_OF_DESCRIPTORS = 2
"""One in so many descriptors is for files of logs. A quarter is for links between nodes and files that are open for a
moment (`runtime.descriptors`); the rest is for clients."""


class Holder(Protocol):
    """Keeps one file open, and can open it again."""

    opened_file: File | None


class OpenFiles:
    """The open files of the logs of one node. Thread-safe."""

    __slots__ = ("_holders", "_lock", "limit")

    def __init__(self, limit: int = UNBOUNDED) -> None:
        self.limit = limit
        self._holders: dict[Holder, None] = {}
        """In the order in which they opened their files."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def open_for(self, holder: Holder, disk: Disk, path: str, *, create: bool) -> File:
        """Open the file of `holder`, and drop that of another one if there are too many. Raises OSError."""
        with self._lock:
            self._drop(len(self._holders) + 1 - self.limit)
        # Without the lock: the disk may ask to `spare_some`.
        file = disk.open(path, create=create)
        with self._lock:
            holder.opened_file = file
            self._holders[holder] = None
        return file

    def forget(self, holder: Holder) -> None:
        """Drop the file of `holder`, if it has one."""
        with self._lock:
            self._holders.pop(holder, None)
            holder.opened_file = None

    def spare_some(self) -> bool:
        """Drop some files, so that others can be opened. False if there is none."""
        with self._lock:
            return self._drop(DROPPED_WHEN_SHORT)

    def _drop(self, count: int) -> bool:
        dropped = list(islice(self._holders, max(count, 0)))
        for holder in dropped:
            del self._holders[holder]
            holder.opened_file = None
        return bool(dropped)


def limit_for_logs(descriptors: tuple[int, int] | None) -> int:
    """The limit in a process with these (open, allowed) descriptors; None: without any limit."""
    return UNBOUNDED if descriptors is None else max(descriptors[1] // SHARE_OF_DESCRIPTORS, 1)
