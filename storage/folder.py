"""The directory of one log, shared by all of its segments and their indexes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from barnabas.runtime.world import Disk, File
from barnabas.storage.names import EPOCH_FILE, SCRATCH_SUFFIX, SNAPSHOT_SUFFIX, SYNC_FAILED_FILE, offset_file_name
from barnabas.storage.open_files import Holder, OpenFiles

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Folder:
    """Its path changes when it is renamed."""

    disk: Disk
    path: str
    files: OpenFiles = field(default_factory=OpenFiles)
    """Bounds the open files of all logs of the node."""
    new_names: int = 0
    """Files that were created by their first write; `Flusher` takes the number over."""

    def file(self, base_offset: int, suffix: str) -> str:
        return f"{self.path}/{offset_file_name(base_offset, suffix)}"

    def snapshot(self, offset: int) -> str:
        return self.file(offset, SNAPSHOT_SUFFIX)

    def open_for(self, holder: Holder, path: str, *, create: bool) -> File:
        """See `OpenFiles.open_for`."""
        return self.files.open_for(holder, self.disk, path, create=create)

    def note_failed_sync(self) -> None:
        """The page cache may have data that will never be on disk. Leaves a marker for the next recovery, if the disk
        still accepts a name; it need not be durable, because it only matters as long as the page cache does.
        """
        try:
            self.disk.open(f"{self.path}/{SYNC_FAILED_FILE}", create=True).close()
            epoch_file = f"{self.path.rpartition('/')[0]}/{EPOCH_FILE}"
            if self.disk.exists(epoch_file):
                self.disk.remove(epoch_file)
        except OSError as error:
            _log.warning("%s: cannot record that a sync has failed: %s", self.path, error)


@dataclass(slots=True)
class ScratchFolder(Folder):
    """Directory of a segment that is no part of the log, with names that the next start removes."""

    home: Folder = field(kw_only=True)

    @classmethod
    def beside(cls, home: Folder) -> ScratchFolder:
        return cls(home.disk, home.path, home=home)

    def file(self, base_offset: int, suffix: str) -> str:
        return self.home.file(base_offset, suffix) + SCRATCH_SUFFIX
