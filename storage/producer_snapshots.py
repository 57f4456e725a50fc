"""The producer snapshot files of one log: one at each roll and at a clean stop, named by their offset.

Does not interpret their content. A snapshot torn by a crash fails its CRC, and the previous one is used.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from barnabas.runtime.world import File
from barnabas.storage.folder import Folder
from barnabas.storage.names import SNAPSHOT_SUFFIX, parse_offset_file_name


class SnapshotFiles:
    """Offsets of the snapshots on disk, ascending."""

    __slots__ = ("_folder", "offsets", "unsynced")

    def __init__(self, folder: Folder, names: Iterable[str]) -> None:
        self._folder = folder
        self.offsets = sorted(
            parsed[0]
            for parsed in map(parse_offset_file_name, names)
            if parsed is not None and parsed[1] == SNAPSHOT_SUFFIX
        )
        self.unsynced: list[int] = []
        """Written but not known to be durable."""

    def write(self, offset: int, data: bytes) -> None:
        """Without a sync: a snapshot can be rebuilt, so it must not delay an append."""
        file = self._folder.disk.open(self._folder.snapshot(offset), create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
        finally:
            file.close()
        if offset not in self.offsets:
            insort(self.offsets, offset)
        if offset not in self.unsynced:
            self.unsynced.append(offset)

    def read(self, offset: int) -> bytes:
        return self._folder.disk.read_bytes(self._folder.snapshot(offset))

    def open(self, offset: int) -> File:
        return self._folder.disk.open(self._folder.snapshot(offset))

    def sync(self, offset: int) -> None:
        """Make the snapshot at `offset` durable, if it exists."""
        if offset not in self.offsets:
            return
        file = self._folder.disk.open(self._folder.snapshot(offset))
        try:
            file.sync()
        except OSError:
            self._folder.note_failed_sync()
            raise
        finally:
            file.close()
        self.unsynced = [each for each in self.unsynced if each != offset]

    def remove(self, offsets: Iterable[int]) -> None:
        """Missing files are no error."""
        disk = self._folder.disk
        for offset in list(offsets):
            path = self._folder.snapshot(offset)
            if disk.exists(path):
                disk.remove(path)
            if offset in self.offsets:
                self.offsets.remove(offset)
            if offset in self.unsynced:
                self.unsynced.remove(offset)

    def remove_after(self, end_offset: int) -> None:
        """The log now ends at `end_offset`. Durable at once: a snapshot restored by a power cut would be applied to
        other records.
        """
        later = [offset for offset in self.offsets if offset > end_offset]
        if later:
            self.remove(later)
            self._folder.disk.sync_directory(self._folder.path)

    def remove_strays(self, base_offsets: Iterable[int], end_offset: int) -> None:
        """Keep the snapshots at segment starts and the newest of all, up to the log end."""
        self.remove_after(end_offset)
        wanted = {*base_offsets, *self.offsets[-1:]}
        self.remove(offset for offset in self.offsets if offset not in wanted)
