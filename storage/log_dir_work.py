"""Slow work on the logs of a log dir: opening existing logs and creating new ones.

A work object is called once, in any thread; it reads nothing that may change meanwhile, and returns what
`LogDirectories` is to adopt.

New logs are not synced one by one, only one list of their topic ids (`topic-id-checkpoint`). That list must be durable
before a log takes its first record: after a power cut, records in a directory without a topic id would be useless, or
be taken for those of another topic of the same name. `partition.metadata` has the same id and is synced later
(`SettleLogs`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.settings.topic import TopicConfig
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.names import directory_name
from barnabas.storage.partition_metadata import (
    PARTITION_METADATA_FILE,
    MalformedPartitionMetadata,
    begin_partition_metadata,
    read_partition_metadata,
    sync_partition_metadata,
    write_partition_metadata,
)
from barnabas.storage.producers import ProducerStateConfig
from barnabas.storage.recovery import LastRun
from barnabas.storage.shortage import is_shortage, lacks_descriptors

_log = logging.getLogger(__name__)

MANY_SYNCS = 32
"""From so many syncs on, one of the whole volume before them is cheaper."""


class DirectoryFailure(NamedTuple):
    """The disk of a directory failed during some work."""

    directory: LogDirectory
    error: OSError


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log to create."""

    topic: str
    partition: int
    topic_id: bytes
    config: TopicConfig
    directory_id: bytes | None = None
    """Its directory; None or unknown: in the directory with the fewest logs."""


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Work: open an existing log. Returns the log or the failure of its directory."""

    directory: LogDirectory
    topic: str
    partition: int
    config: TopicConfig
    now_ms: int
    producer_state: ProducerStateConfig
    future_name: str = ""
    """Name of the log's own directory if it is a future log."""
    empty_topic_id: bytes | None = None
    """Topic id of a log that has no record, which is certain (`storage.empty_logs`)."""

    @property
    def path(self) -> str:
        return f"{self.directory.path}/{self.future_name or directory_name(self.topic, self.partition)}"

    def __call__(self) -> PartitionLog | DirectoryFailure:
        try:
            return self._open()
        except OSError as error:
            return DirectoryFailure(self.directory, error)

    def _open(self) -> PartitionLog:
        directory, key = self.directory, (self.topic, self.partition)
        if self.empty_topic_id is not None:
            return self._open_empty(self.empty_topic_id)
        noted_id = directory.new_topic_ids.get(key)
        if not directory.has_notes_about(key) and directory.disk.list(self.path) == [PARTITION_METADATA_FILE]:
            return self._open_empty(self._topic_id(noted_id))
        # Without the checkpoint, everything cleaned long ago would seem to be behind the recovery point.
        gaps_are_unknown = self.config.compacts and not directory.knows_recovery_points
        last_run = LastRun(
            recovery_point=directory.recovery_points.get(key, 0),
            clean_shutdown=directory.was_clean,
            lost_power=directory.lost_power and not gaps_are_unknown,
            log_start_offset=directory.log_start_offsets.get(key, 0),
            high_watermark=directory.high_watermarks.get(key),
        )
        log = PartitionLog.open(
            Folder(directory.disk, self.path, directory.files),
            key=(self.topic, self.partition),
            config=self.config,
            now_ms=self.now_ms,
            last_run=last_run,
            producer_state=self.producer_state,
        )
        log.set_high_watermark(directory.high_watermarks.get(key, 0))
        log.cleaned_to = directory.cleaned_offsets.get(key)
        log.topic_id = self._topic_id(noted_id)
        # There may be more logs than descriptors; a log opens its files when it needs them.
        log.close_files()
        return log

    def _open_empty(self, topic_id: bytes | None) -> PartitionLog:
        """The log has had no record, as most logs of a large cluster: nothing is to be recovered."""
        log = PartitionLog.create(
            Folder(self.directory.disk, self.path, self.directory.files),
            key=(self.topic, self.partition),
            config=self.config,
            now_ms=self.now_ms,
            producer_state=self.producer_state,
        )
        log.topic_id = topic_id
        return log

    def _topic_id(self, noted: bytes | None) -> bytes | None:
        disk = self.directory.disk
        try:
            found = read_partition_metadata(disk, self.path)
        except MalformedPartitionMetadata as error:
            _log.warning("%s", error)
            found = None
        if noted is not None and found != noted:
            # The list is durable, and while an id is in it, the file is not: after a power cut it may contain anything.
            write_partition_metadata(disk, self.path, noted)
            return noted
        return found


@dataclass(frozen=True, slots=True)
class MakeLogs:
    """Work: create logs in one directory. Returns them in the same order, or the failure of the directory."""

    directory: LogDirectory
    wanted: Sequence[NewLog]
    now_ms: int
    producer_state: ProducerStateConfig

    def __call__(self) -> list[PartitionLog] | DirectoryFailure:
        directory = self.directory
        made: list[PartitionLog] = []
        try:
            for new in self.wanted:
                directory.disk.make_directories(self._path(new))
            # Before they have content: a process that is killed halfway must not leave a log behind whose id may get
            # lost later. Makes the names durable, too.
            directory.note_new_logs({(new.topic, new.partition): new.topic_id for new in self.wanted})
            for new in self.wanted:
                made.append(self._make(new))
        except OSError as error:
            for log in made:
                log.close_files()
            return DirectoryFailure(directory, error)
        return made

    def _path(self, new: NewLog) -> str:
        return f"{self.directory.path}/{directory_name(new.topic, new.partition)}"

    def _make(self, new: NewLog) -> PartitionLog:
        disk, path = self.directory.disk, self._path(new)
        begin_partition_metadata(disk, path, new.topic_id)
        log = PartitionLog.create(
            Folder(disk, path, self.directory.files),
            key=(new.topic, new.partition),
            config=new.config,
            now_ms=self.now_ms,
            producer_state=self.producer_state,
        )
        log.topic_id = new.topic_id
        log.close_files()
        return log


@dataclass(frozen=True, slots=True)
class SettleLogs:
    """Work: make the `partition.metadata` of new logs durable, so that they are no longer new.

    Must not run while logs are created in the same directory. Returns the failure of the directory.
    """

    directory: LogDirectory

    def __call__(self) -> list[DirectoryFailure]:
        directory = self.directory
        topic_ids = directory.new_topic_ids
        passes = lacks_descriptors
        try:
            paths: Sequence[str] = [f"{directory.path}/{directory_name(*key)}" for key in topic_ids]
            if len(paths) >= MANY_SYNCS:
                paths = directory.disk.sync_together([directory.path, *paths])
            for path in paths:
                if path != directory.path:
                    sync_partition_metadata(directory.disk, path)
            passes = is_shortage
            directory.forget_new_logs(topic_ids)
        except OSError as error:
            if not passes(error):
                return [DirectoryFailure(directory, error)]
            _log.warning("the new logs in %s cannot be completed yet: %s", directory.path, error)
        return []


Piece = tuple[LogDirectory, Callable[[], None]]
"""Work in a directory. Raises OSError."""


def run_all(pieces: Sequence[Piece]) -> list[DirectoryFailure]:
    """Run them one by one, each whether or not others fail."""
    failures: list[DirectoryFailure] = []
    for directory, piece in pieces:
        try:
            piece()
        except OSError as error:
            failures.append(DirectoryFailure(directory, error))
    return failures
