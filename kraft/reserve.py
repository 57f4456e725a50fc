"""A file that takes up room until the metadata log needs it.

Metadata and records often share a disk, and records fill it. The room that is given up then lasts until the controller
has handed over what the broker leads, and this node has heard of it.
"""

from __future__ import annotations

import logging

from runtime.world import Disk
from storage.shortage import is_shortage, lacks_room

log = logging.getLogger(__name__)

RESERVE_FILE = ".metadata-reserve"
RESERVE_BYTES = 256 << 10


class Reserve:
    """Of one node, in its `metadata.log.dir`."""

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
        """Whether there is room that was not there before."""
        if not self.is_there or not lacks_room(shortage):
            return False
        self.is_there = False
        self._disk.remove(self._path)
        log.warning("%s is given up, for there is no other room for metadata", self._path)
        return True
