"""A file that reserves disk space for the metadata log.

Metadata and records often share a disk, and records fill it. The reserve is then removed; its space lasts until the
controller has moved this broker's leaderships, and this node has read of it.
"""

from __future__ import annotations

import logging

from barnabas.runtime.world import Disk
from barnabas.storage.shortage import is_shortage, lacks_room

log = logging.getLogger(__name__)

RESERVE_FILE = ".metadata-reserve"
RESERVE_BYTES = 256 << 10


class Reserve:
    """The reserve of one node, in its `metadata.log.dir`."""

    def __init__(self, disk: Disk, log_directory: str) -> None:
        self._disk = disk
        self._path = f"{log_directory}/{RESERVE_FILE}"
        self.is_there = False

    def take(self) -> None:
        """Write the file, if it fits. May run in a thread."""
        disk, path = self._disk, self._path
        try:
            file = disk.open(path, create=True)
            try:
                if file.size() < RESERVE_BYTES:
                    file.pwrite(bytes(RESERVE_BYTES), 0)
            finally:
                file.close()
        except OSError as error:
            if not is_shortage(error):
                raise
            log.warning("%s does not fit: %s", path, error)
            if disk.exists(path):
                disk.remove(path)
            return
        self.is_there = True

    def give_up(self, shortage: OSError) -> bool:
        """Remove the file; True if that made room."""
        if not self.is_there or not lacks_room(shortage):
            return False
        self.is_there = False
        self._disk.remove(self._path)
        log.warning("%s is removed to make room for the metadata log", self._path)
        return True
