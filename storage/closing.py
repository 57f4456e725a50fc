"""A clean stop of very many logs of a log dir: its volume is synced three times, instead of six files of each log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.storage.flushing import FlushWork
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_directory import LogDirectory


@dataclass(frozen=True, slots=True)
class CloseLogs:
    """Work: close `logs`, all of one directory, after making everything in them durable.

    Data, indexes, producer snapshots and names become durable first, with leader epochs in files aside, then these
    under their names. So no crash leaves leader epochs without the data before them.
    """

    directory: LogDirectory
    logs: Sequence[PartitionLog]

    def __call__(self) -> bool:
        """False if that is not certain for some of them: then nothing was done, and each is to be closed by itself.
        Raises OSError and KafkaError."""
        if not self._sync([log.directory for log in self.logs]):
            return False
        works: list[tuple[PartitionLog, FlushWork]] = []
        for log in self.logs:
            log.cleaning.interrupt()
            work = log.flushes.closing_work()
            if work is not None:
                work.put_epochs_aside()
                work.files.clear()  # there may be more of them than descriptors
                works.append((log, work))
            log.close_files()
        self._sync([])
        for _, work in works:
            work.place_epochs()
        if any(work.epochs is not None for _, work in works):
            self._sync([])
        for log, work in works:
            log.flushes.done(work.offset)
        return True

    def _sync(self, paths: Sequence[str]) -> bool:
        """False if it is not certain that this made all of them durable. Raises OSError, also for what was lost since
        the directory was locked."""
        directory = self.directory
        return not directory.disk.sync_together([directory.path, *paths], since=directory.lock_path)
