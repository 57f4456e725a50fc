"""The checkpoints of all logs of a node: their recovery points, start offsets, high watermarks and cleaned offsets.

Each log dir has a file of each kind, with an entry for every log in it (`storage/checkpoints.py` has the format).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from barnabas.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from barnabas.storage.future_logs import FutureLogs
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import Piece
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.shortage import is_shortage

_log = logging.getLogger(__name__)


def start_to_note(log: PartitionLog) -> int | None:
    """None if the name of the first file says it. A start above the recovery point waits for a flush: after a power
    cut the log might end before it, and recovery would empty the log. A tiered log starts before its first file.
    """
    start = min(log.log_start_offset, log.recovery_point)
    if log.config.is_tiered:
        return start or None
    return start if start > log.segments[0].base_offset else None


_CHECKPOINTED: dict[str, Callable[[PartitionLog], int | None]] = {
    RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
    LOG_START_OFFSET_CHECKPOINT: start_to_note,
    REPLICATION_OFFSET_CHECKPOINT: lambda log: log.flushes.high_watermark_after_a_crash,
    CLEANER_OFFSET_CHECKPOINT: lambda log: log.cleaned_to,
}


@dataclass(slots=True)
class LogCheckpoints:
    """Knows the logs of `LogDirectories` and where each is."""

    logs: Mapping[tuple[str, int], PartitionLog]
    places: Mapping[tuple[str, int], LogDirectory]
    futures: FutureLogs
    moved_logs: dict[PartitionLog, None] = field(default_factory=dict)
    """Logs whose high watermark moved since it was last written down."""
    _written_logs: int = -1
    """Number of logs in the checkpoints of high watermarks; -1: one of them could not be written."""

    def pieces(self, directories: Iterable[LogDirectory], *names: str) -> list[Piece]:
        """Work that writes the named checkpoints (all kinds by default) of directories that have room. High watermarks
        of which none has moved are not gathered again."""
        wanted = list(names or _CHECKPOINTED)
        if REPLICATION_OFFSET_CHECKPOINT in wanted:
            if not self.moved_logs and self._written_logs == len(self.logs):
                wanted.remove(REPLICATION_OFFSET_CHECKPOINT)
            self.moved_logs.clear()
            self._written_logs = len(self.logs)
        return [
            (directory, partial(self._write_if_it_fits, directory, name))
            for directory in directories
            for name in wanted
        ]

    def last_pieces(self, directories: Iterable[LogDirectory]) -> list[Piece]:
        """Work that writes all checkpoints, and fails if there is no room."""
        return [(it, partial(self._write, it, name)) for it in directories for name in _CHECKPOINTED]

    def recovery_point_lowered(self, directory: LogDirectory) -> None:
        """Must be durable before the records are removed; otherwise a crash could leave a recovery point beyond the
        log's end.
        """
        self._write(directory, RECOVERY_POINT_CHECKPOINT)
        if directory.disk.exists(f"{directory.path}/{CLEANER_OFFSET_CHECKPOINT}"):
            # What is appended in place of those records is not clean: a tombstone might go before what it deletes.
            self._write(directory, CLEANER_OFFSET_CHECKPOINT)

    def _write_if_it_fits(self, directory: LogDirectory, name: str) -> None:
        """An outdated checkpoint only makes a recovery slower. The next one will be newer."""
        try:
            self._write(directory, name)
        except OSError as error:
            if not is_shortage(error):
                raise
            self._written_logs = -1
            _log.warning("%s/%s remains as it is: %s", directory.path, name, error)

    def _write(self, directory: LogDirectory, name: str) -> None:
        value_of, places = _CHECKPOINTED[name], self.places
        offsets = {
            key: value
            for key, log in list(self.logs.items())
            if places.get(key) is directory and (value := value_of(log)) is not None
        }
        for log in self.futures.in_directory(directory):
            value = value_of(log)
            if value is not None:
                offsets[log.topic, log.partition] = value
        directory.write_checkpoint(name, offsets)
