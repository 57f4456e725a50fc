"""Directories of deleted logs: they are renamed at once, and removed when `file.delete.delay.ms` is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import Piece
from barnabas.storage.log_directory import LogDirectory


@dataclass(slots=True)
class _Condemned:
    """A renamed directory, to be removed when it is due."""

    due_ms: int
    directory: LogDirectory
    path: str
    log: PartitionLog | None = None


@dataclass(slots=True)
class CondemnedLogs:
    """The renamed directories of a node."""

    _entries: list[_Condemned] = field(default_factory=list)

    def add(self, due_ms: int, directory: LogDirectory, path: str, log: PartitionLog | None = None) -> None:
        """`path` is in `directory`; `log` still has open files."""
        self._entries.append(_Condemned(due_ms, directory, path, log))

    def forget(self, directory: LogDirectory) -> None:
        """The disk of this directory failed."""
        self._entries = [entry for entry in self._entries if entry.directory is not directory]

    def take_due(self, now_ms: int) -> list[Piece]:
        """Work that removes the directories that are due."""
        due = [entry for entry in self._entries if entry.due_ms <= now_ms]
        self._entries = [entry for entry in self._entries if entry.due_ms > now_ms]
        return [(entry.directory, partial(_remove, entry)) for entry in due]


def _remove(entry: _Condemned) -> None:
    disk = entry.directory.disk
    if entry.log is not None:
        entry.log.close_files()
    # The new name must be durable before the first file is removed, or a power cut could leave half a log.
    disk.sync_directory(entry.directory.path)
    if disk.exists(entry.path):
        disk.remove_tree(entry.path)
