"""Future logs: copies of logs that move to another log dir of the same node (KIP-113).

A future log lives in `<topic>-<partition>.<uuid>-future`. When it has all records, two renames make it the current log:
its own directory gets the name of the partition, then the former one a name that ends in `-delete`. After a crash
between them two directories hold the partition; the metadata names the right one (`choose_copy`). A future log in the
directory that the metadata names becomes the log at the next start if it has all records (`has_all_of`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import DirectoryFailure, NewLog
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.partition_metadata import write_partition_metadata
from barnabas.storage.producers import ProducerStateConfig

LogKey = tuple[str, int]
"""(topic, partition)"""

HomeOf = Callable[[str, int], bytes | None]
"""Id of the directory in which the metadata has a replica of this node; None if it has none."""


@dataclass(frozen=True, slots=True)
class MakeFutureLog:
    """Work: create an empty future log. Returns it, or the failure of its directory."""

    directory: LogDirectory
    name: str
    """Name of the log's own directory."""
    wanted: NewLog
    now_ms: int
    producer_state: ProducerStateConfig

    def __call__(self) -> PartitionLog | DirectoryFailure:
        disk, path, wanted = self.directory.disk, f"{self.directory.path}/{self.name}", self.wanted
        try:
            disk.make_directories(path)
            write_partition_metadata(disk, path, wanted.topic_id)
            log = PartitionLog.create(
                Folder(disk, path, self.directory.files),
                key=(wanted.topic, wanted.partition),
                config=wanted.config,
                now_ms=self.now_ms,
                producer_state=self.producer_state,
            )
            disk.sync_directory(self.directory.path)
        except OSError as error:
            return DirectoryFailure(self.directory, error)
        log.topic_id = wanted.topic_id
        return log


@dataclass(slots=True)
class FutureLogs:
    """The future logs of one node, at most one for each partition."""

    logs: dict[LogKey, PartitionLog] = field(default_factory=dict)
    places: dict[LogKey, LogDirectory] = field(default_factory=dict)

    def put(self, directory: LogDirectory, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        self.logs[key] = log
        self.places[key] = directory

    def take(self, key: LogKey) -> tuple[PartitionLog, LogDirectory] | None:
        """Remove it from here; its files stay."""
        log = self.logs.pop(key, None)
        return None if log is None else (log, self.places.pop(key))

    def lose(self, directory: LogDirectory) -> list[PartitionLog]:
        """Remove those in a directory whose disk failed."""
        lost = [key for key, place in self.places.items() if place is directory]
        return [log for key in lost if (found := self.take(key)) is not None for log in found[:1]]

    def in_directory(self, directory: LogDirectory) -> list[PartitionLog]:
        return [log for key, log in list(self.logs.items()) if self.places.get(key) is directory]


def choose_copy(copies: list[tuple[LogDirectory, PartitionLog]], home: bytes | None) -> int | None:
    """Index of the copy in the directory `home`, which the metadata names; None if it names none of them."""
    for index, (directory, _) in enumerate(copies):
        if home is not None and directory.directory_id == home:
            return index
    return None


def has_all_of(future: PartitionLog, current: PartitionLog | None) -> bool:
    """True if a future log that was found at a start can replace the current one. A power cut may have undone the
    renames of a swap, and the former log may lack what was appended, and flushed, since."""
    if current is None:
        return True
    ends = [(each.latest_epoch, each.log_end_offset) for each in (future, current)]
    return ends[0] >= ends[1]


def take_over(current: PartitionLog, future: PartitionLog) -> None:
    """Prepare a future log that has all records of the current one to take its place."""
    future.config = current.config
    future.topic_id = current.topic_id
    future.cleaned_to = current.cleaned_to
    for epoch, start_offset in current.epochs.entries():
        # A leader that has written nothing yet has an epoch without a batch.
        if epoch > future.latest_epoch:
            future.epochs.assign(epoch, start_offset)
    future.take_over_producers(current)
    future.set_high_watermark(current.high_watermark)
    future.highest_copied_offset = current.highest_copied_offset
    future.advance_log_start_offset(current.log_start_offset)
