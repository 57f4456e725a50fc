"""All log dirs of a node (`log.dirs`) and the logs in them.

A partition lives in one directory. A directory whose disk fails goes offline with its logs; the node continues with the
others. Slow tasks (recovery, creation with its syncs, checkpoints, removal of files) are returned as work objects
(`storage.log_dir_work`): callables that may run outside the event loop, one kind at a time, whose result is passed to
`adopt`, `adopt_new` or `note_failures`. All other methods belong to the owner alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from barnabas.protocol.errors import KafkaError
from barnabas.runtime.at_once import Stepwise, at_once
from barnabas.runtime.world import Chance, Disk
from barnabas.settings.topic import TopicConfig
from barnabas.storage.closing import CloseLogs
from barnabas.storage.condemned import CondemnedLogs
from barnabas.storage.empty_logs import EmptyLog, EmptyLogs
from barnabas.storage.future_logs import FutureLogs, HomeOf, LogKey, MakeFutureLog, choose_copy, has_all_of
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_checkpoints import LogCheckpoints
from barnabas.storage.log_dir_work import (
    MANY_SYNCS,
    DirectoryFailure,
    MakeLogs,
    NewLog,
    OpenLog,
    Piece,
    SettleLogs,
    run_all,
)
from barnabas.storage.log_directory import NO_BROKER_EPOCH, LogDirectory, LogDirectoryError
from barnabas.storage.names import (
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    METADATA_TOPIC,
    STRAY_DIRECTORY_SUFFIX,
    PartitionDirectory,
    directory_name,
    marked_directory_name,
    parse_directory_name,
)
from barnabas.storage.open_files import OpenFiles
from barnabas.storage.own_directories import take_directories
from barnabas.storage.partition_metadata import check_topic_id, write_partition_metadata
from barnabas.storage.producers import ProducerStateConfig
from barnabas.storage.shortage import is_shortage, lacks_descriptors, lacks_room

_log = logging.getLogger(__name__)

LOGS_IN_A_STEP = 500
"""Logs that are asked in one step whether files are to be removed."""

ConfigOf = Callable[[str], TopicConfig]
"""Config of a topic by name."""


def _topic_id_if_empty(directory: LogDirectory, parsed: PartitionDirectory, path: str) -> bytes | None:
    """The topic id of a log that had no record at the clean stop before, and whose directory has not changed since."""
    key = (parsed.topic, parsed.partition)
    noted = directory.empty_logs.get(key) if parsed.kind == "current" else None
    if noted is None or directory.has_notes_about(key):
        return None
    try:
        return noted.topic_id if directory.disk.changed_ns(path) == noted.changed_ns else None
    except FileNotFoundError:
        return None


class _Hooks(NamedTuple):
    """Callbacks of the logs of one directory."""

    on_failure: Callable[[OSError], None]
    on_no_room: Callable[[], None]
    on_recovery_point_lowered: Callable[[PartitionLog], None]


@dataclass(slots=True)
class LogDirectories:
    """Open them with `open`, then call `load`, or run the `load_work` and `adopt` its results."""

    directories: list[LogDirectory]
    chance: Chance
    producer_state: ProducerStateConfig = field(default_factory=ProducerStateConfig)
    logs: dict[tuple[str, int], PartitionLog] = field(default_factory=dict)
    """Logs of the online directories by (topic, partition)."""
    strays: list[str] = field(default_factory=list)
    """Paths of directories whose partition no longer belongs to this node; they are not touched."""
    files: OpenFiles = field(default_factory=OpenFiles)
    """The open files of all logs; set its limit to bound them."""
    futures: FutureLogs = field(default_factory=FutureLogs)
    """Copies of logs that move between directories."""
    flush_candidates: dict[PartitionLog, None] = field(default_factory=dict)
    """Logs that changed since it was seen that they need no flush, future logs among them. See `need_flush`."""
    cordoned: frozenset[str] = frozenset()
    """Paths of directories in which no new log is placed, unless all are (KIP-1066)."""
    on_offline: Callable[[LogDirectory, list[PartitionLog]], None] | None = None
    """Called once with a directory whose disk failed and the logs that were in it."""
    on_no_room: Callable[[LogDirectory], None] | None = None
    """Called each time something does not fit into a directory."""
    _hooks: dict[str, _Hooks] = field(default_factory=dict)
    """By the path of a directory: all of its logs share them."""
    _places: dict[tuple[str, int], LogDirectory] = field(default_factory=dict)
    _condemned: CondemnedLogs = field(default_factory=CondemnedLogs)
    _checkpoints: LogCheckpoints = field(init=False)
    _is_closed: bool = False
    _second_copies: list[tuple[LogDirectory, PartitionLog]] = field(default_factory=list)
    """Current logs of partitions that another directory has, too; see `settle_copies`."""

    def __post_init__(self) -> None:
        self._checkpoints = LogCheckpoints(self.logs, self._places, self.futures)

    # -- opening

    @classmethod
    def open(
        cls,
        disk: Disk,
        paths: Sequence[str],
        node_id: int,
        chance: Chance,
        cluster_id: str | None = None,
        metadata_path: str | None = None,
    ) -> LogDirectories:
        """Lock the directories and check their identity; new ones are formatted for this node. The one at
        `metadata_path` holds no replicas if it is not in `paths`.

        Without `cluster_id`, at least one must have been formatted. Raises `LogDirectoryError` if the node must not
        start. A directory whose disk fails is offline, unless all fail.
        """
        files = OpenFiles()
        disk.when_short(files.spare_some)
        opened = cls([LogDirectory(disk, path, files) for path in paths], chance, files=files)
        if metadata_path is not None and metadata_path not in paths:
            opened.directories.append(LogDirectory(disk, metadata_path, files, takes_replicas=False))
        try:
            take_directories(opened.directories, (node_id, cluster_id), chance, opened._fail_at_start)
        except BaseException:
            for directory in opened.directories:
                directory.unlock()
            raise
        return opened

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    @property
    def with_replicas(self) -> list[LogDirectory]:
        """Directories visible to the controller and to clients, including failed ones."""
        return [directory for directory in self.directories if directory.holds_replicas]

    @property
    def cluster_id(self) -> str:
        return next(directory.properties.cluster_id for directory in self.online if directory.properties)

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch in which this node ended without losing anything in any of its directories; -1 otherwise
        (KIP-966)."""
        epochs = {directory.previous_broker_epoch for directory in self.with_replicas}
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        return self._places.get((topic, partition))

    # -- loading

    def load_work(self, config_of: ConfigOf, now_ms: int) -> list[OpenLog]:
        """One work object for each existing log, to be run in any order and concurrently.

        Removes the clean shutdown markers, so it must be called only once. Raises `LogDirectoryError` if the process
        may open too few files.
        """
        work: list[OpenLog] = []
        for directory in self.online:
            try:
                directory.begin()
                work += self._found_in(directory, config_of, now_ms)
            except OSError as error:
                self._fail_at_start(directory, error)
        return work

    def _found_in(self, directory: LogDirectory, config_of: ConfigOf, now_ms: int) -> Iterator[OpenLog]:
        topics: dict[str, str] = {}
        """All partitions of a topic share its name."""
        for name in directory.disk.list(directory.path):
            path = f"{directory.path}/{name}"
            parsed = parse_directory_name(name)
            if parsed is None or parsed.topic == METADATA_TOPIC:
                continue
            empty_id = _topic_id_if_empty(directory, parsed, path)
            if empty_id is None and not directory.disk.is_directory(path):
                continue
            if parsed.kind == "delete":
                delay_ms = config_of(parsed.topic).file_delete_delay_ms
                self._condemned.add(now_ms + delay_ms, directory, path)
            elif parsed.kind == "stray":
                self.strays.append(path)
            else:
                future = name if parsed.kind == "future" else ""
                config = config_of(parsed.topic)
                topic = topics.setdefault(parsed.topic, parsed.topic)
                yield OpenLog(
                    directory, topic, parsed.partition, config, now_ms, self.producer_state, future, empty_id
                )

    def note_boot(self) -> list[DirectoryFailure]:
        """The results of `load_work` have all been adopted. Thread-safe; returns failures for `note_failures`."""
        failures = []
        for directory in self.online:
            directory.forget_last_run()
            try:
                directory.note_boot()
            except OSError as error:
                failures.append(DirectoryFailure(directory, error))
        return failures

    def note_epoch(self, broker_epoch: int) -> list[DirectoryFailure]:
        """The node is registered. Thread-safe; returns failures for `note_failures`."""
        failures = []
        for directory in self.online:
            try:
                directory.note_epoch(broker_epoch)
            except OSError as error:
                if is_shortage(error):
                    _log.warning("%s: cannot note the broker epoch: %s", directory.path, error)
                else:
                    failures.append(DirectoryFailure(directory, error))
        return failures

    def adopt(self, work: OpenLog, result: PartitionLog | DirectoryFailure) -> PartitionLog | None:
        """Add the result of `work`; None if its directory failed."""
        if isinstance(result, DirectoryFailure):
            self._fail(*result)
            return None
        return self._take_in(work.directory, result, is_future=bool(work.future_name))

    def _take_in(
        self, directory: LogDirectory, log: PartitionLog, *, is_future: bool = False
    ) -> PartitionLog | None:
        key = (log.topic, log.partition)
        if directory.failure is not None:
            log.close_files()
            return None
        hooks = self._hooks.get(directory.path)
        if hooks is None:
            hooks = self._hooks[directory.path] = _Hooks(
                partial(self._fail, directory),
                partial(self._no_room, directory),
                lambda log: self._checkpoints.recovery_point_lowered(directory),
            )
        log.health.on_failure, log.health.on_no_room, log.on_recovery_point_lowered = hooks
        log.health.is_closed_for_room = directory.is_closed_for_room
        log.flush_candidates = self.flush_candidates
        if not log.flushes.are_out_of_question:
            self.flush_candidates[log] = None
        log.moved_logs = self._checkpoints.moved_logs
        log.moved_logs[log] = None
        if is_future and key not in self.futures.logs:
            self.futures.put(directory, log)
        elif is_future or key in self.logs:
            self._second_copies.append((directory, log))
        else:
            self.logs[key] = log
            self._places[key] = directory
        return log

    def settle_copies(self, home_of: HomeOf, now_ms: int) -> None:
        """All logs are loaded: finish the moves between directories that a crash interrupted in the middle of their two
        renames.

        Raises `LogDirectoryError` for two copies of a partition if the metadata names neither directory.
        """
        for directory, second in self._second_copies:
            key = (second.topic, second.partition)
            if FUTURE_DIRECTORY_SUFFIX in second.directory:
                self._condemn(directory, second, now_ms)
                continue
            if key not in self.logs:
                continue
            first = self.logs[key]
            chosen = choose_copy([(self._places[key], first), (directory, second)], home_of(*key))
            if chosen is None:
                raise LogDirectoryError(
                    f"{second.directory} and {first.directory} hold the same partition: remove one of them"
                )
            loser = [(directory, second), (self._places[key], first)][chosen]
            if chosen:
                self.logs[key], self._places[key] = second, directory
            _log.warning("%s is removed: %s moved away from it", loser[1].directory, f"{key[0]}-{key[1]}")
            self._condemn(*loser, now_ms)
        self._second_copies = []
        for key, place in list(self.futures.places.items()):
            future = self.futures.logs[key]
            if home_of(*key) == place.directory_id and has_all_of(future, self.logs.get(key)):
                _log.warning("%s has all records of %s-%d: it becomes the log", future.directory, *key)
                self.promote_future(key, now_ms)

    def load(self, config_of: ConfigOf, now_ms: int) -> None:
        """Load all logs synchronously."""
        for work in self.load_work(config_of, now_ms):
            self.adopt(work, work())
        self.settle_copies(lambda topic, partition: None, now_ms)
        self.note_failures(self.note_boot())

    # -- failures

    def note_failures(self, failures: Iterable[DirectoryFailure]) -> None:
        """Take failed directories offline."""
        for directory, error in failures:
            if lacks_descriptors(error):
                _log.warning("%s: some work was postponed: %s", directory.path, error)
            else:
                self._fail(directory, error)

    def _fail_at_start(self, directory: LogDirectory, error: OSError) -> None:
        """Raises `LogDirectoryError` if it is not the disk that fails."""
        if lacks_descriptors(error):
            raise LogDirectoryError(f"{directory.path}: {error.strerror}: `ulimit -n` allows too few") from None
        self._fail(directory, error)

    def _fail(self, directory: LogDirectory, error: OSError) -> None:
        if directory.failure is not None:
            return
        directory.failure = error
        _log.error("log dir %s is offline: %s", directory.path, error)
        lost = [key for key, place in self._places.items() if place is directory]
        logs = []
        for key in lost:
            log = self.logs.pop(key)
            del self._places[key]
            log.health.failure = log.failure or error
            log.close_files()
            logs.append(log)
        for log in self.futures.lose(directory):
            log.health.failure = log.failure or error
            log.close_files()
        self._condemned.forget(directory)
        if self.on_offline is not None:
            self.on_offline(directory, logs)

    def close_for_room(self, directory: LogDirectory, closed: bool) -> None:
        """Set whether a directory is too full for appends. Its logs can still be read, truncated and deleted."""
        directory.is_closed_for_room = closed
        for key, place in self._places.items():
            if place is directory:
                self.logs[key].health.is_closed_for_room = closed
        for log in self.futures.in_directory(directory):
            log.health.is_closed_for_room = closed

    def _no_room(self, directory: LogDirectory) -> None:
        if self.on_no_room is not None:
            self.on_no_room(directory)

    # -- creating and deleting

    def make_work(self, wanted: Sequence[NewLog], now_ms: int) -> list[MakeLogs]:
        """Work that creates logs, none of which may be in `logs`: one object per directory.

        Raises `LogDirectoryError` if no directory is online.
        """
        online = [directory for directory in self.online if directory.takes_replicas]
        if not online:
            raise LogDirectoryError("no log dir is online")
        by_id = {directory.directory_id: directory for directory in online}
        counts = {directory.path: 0 for directory in online}
        for place in self._places.values():
            if place.takes_replicas:
                counts[place.path] += 1
        shares: dict[str, list[NewLog]] = {directory.path: [] for directory in online}
        for new in wanted:
            assert (new.topic, new.partition) not in self.logs, f"{new.topic}-{new.partition} exists"
            open_ones = [directory for directory in online if directory.path not in self.cordoned]
            fewest = min(open_ones or online[:1], key=lambda directory: counts[directory.path])
            path = by_id.get(new.directory_id, fewest).path
            counts[path] += 1
            shares[path].append(new)
        return [
            MakeLogs(directory, share, now_ms, self.producer_state)
            for directory in online
            if (share := shares[directory.path])
        ]

    def adopt_new(self, work: MakeLogs, result: list[PartitionLog] | DirectoryFailure) -> None:
        """Add the results of `work`. After a shortage none of its logs is in `logs`."""
        if isinstance(result, DirectoryFailure):
            if is_shortage(result.error):
                _log.error("no log can be created in %s for now: %s", work.directory.path, result.error)
                if lacks_room(result.error):
                    self._no_room(work.directory)
            else:
                self._fail(*result)
        else:
            for log in result:
                self._take_in(work.directory, log)

    def make(self, new: NewLog, now_ms: int) -> PartitionLog | None:
        """Create a log synchronously; None if its directory fails. See `make_work`."""
        for work in self.make_work([new], now_ms):
            self.adopt_new(work, work())
        return self.logs.get((new.topic, new.partition))

    def settle_work(self) -> list[SettleLogs]:
        """Work that completes new logs, which costs several syncs each."""
        return [SettleLogs(directory) for directory in self.online if directory.new_topic_ids]

    def find(self, topic: str, partition: int, topic_id: bytes) -> PartitionLog | None:
        """The log of a partition if it is here. Raises KafkaError INCONSISTENT_TOPIC_ID if it belongs to another topic.
        """
        log = self.logs.get((topic, partition))
        if log is None:
            return None
        check_topic_id(log.topic_id, topic_id, log.directory)
        if log.topic_id is None:
            try:
                write_partition_metadata(log.disk, log.directory, topic_id)
                log.topic_id = topic_id
            except OSError as error:
                self._fail(self._places[topic, partition], error)
                return None
        return log

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """The partition was removed from this node. Its files are removed after `file.delete.delay.ms`."""
        self.drop_future((topic, partition), now_ms)
        self._retire(topic, partition, DELETE_DIRECTORY_SUFFIX, now_ms)

    def mark_stray(self, topic: str, partition: int, now_ms: int) -> None:
        """The partition is unknown to the cluster. Its files are kept for the operator."""
        self._retire(topic, partition, STRAY_DIRECTORY_SUFFIX, now_ms)

    def _retire(self, topic: str, partition: int, suffix: str, now_ms: int) -> None:
        log = self.logs.pop((topic, partition), None)
        directory = self._places.pop((topic, partition), None)
        if log is not None and directory is not None:
            self._condemn(directory, log, now_ms, suffix)

    def _condemn(
        self, directory: LogDirectory, log: PartitionLog, now_ms: int, suffix: str = DELETE_DIRECTORY_SUFFIX
    ) -> None:
        """Rename the directory of a log that is in use no longer."""
        name = marked_directory_name(log.topic, log.partition, self.chance.randbytes(16).hex(), suffix)
        path = f"{directory.path}/{name}"
        directory.renamed_logs = True
        # Somebody who still reads it may find its files removed.
        log.health.on_failure = None
        try:
            log.rename_directory(path)
        except OSError as error:
            log.close_files()
            self._fail(directory, error)
            return
        if suffix == DELETE_DIRECTORY_SUFFIX:
            due_ms = now_ms + log.config.file_delete_delay_ms
            self._condemned.add(due_ms, directory, path, log)
        else:
            log.close_files()
            self.strays.append(path)

    # -- moves between directories

    def future_work(self, new: NewLog, directory: LogDirectory, now_ms: int) -> MakeFutureLog:
        """Work that creates an empty future log in `directory`."""
        mark = self.chance.randbytes(16).hex()
        name = marked_directory_name(new.topic, new.partition, mark, FUTURE_DIRECTORY_SUFFIX)
        return MakeFutureLog(directory, name, new, now_ms, self.producer_state)

    def adopt_future(self, work: MakeFutureLog, result: PartitionLog | DirectoryFailure) -> PartitionLog | None:
        """Add the result of `work`; None if it failed."""
        if isinstance(result, DirectoryFailure):
            if not is_shortage(result.error):
                self._fail(*result)
            elif lacks_room(result.error):
                self._no_room(work.directory)
            return None
        if (result.topic, result.partition) in self.futures.logs:
            self._condemn(work.directory, result, work.now_ms)
            return None
        return self._take_in(work.directory, result, is_future=True)

    def drop_future(self, key: LogKey, now_ms: int, *, stray: bool = False) -> None:
        """Remove a future log, or put it aside."""
        found = self.futures.take(key)
        if found is not None:
            log, directory = found
            self._condemn(directory, log, now_ms, STRAY_DIRECTORY_SUFFIX if stray else DELETE_DIRECTORY_SUFFIX)

    def promote_future(
        self, key: LogKey, now_ms: int, between: Callable[[PartitionLog], None] = lambda log: None
    ) -> bool:
        """Make a future log the log of its partition, and remove the former one. False if its directory failed, or
        after a shortage: then it is still a future log.

        `between` is called with the new log before the former one is renamed, which may fail.
        """
        found = self.futures.take(key)
        if found is None:
            return False
        log, directory = found
        try:
            log.rename_directory(f"{directory.path}/{directory_name(*key)}")
        except OSError as error:
            if is_shortage(error):
                _log.warning("%s remains a future log for now: %s", log.directory, error)
                self.futures.put(directory, log)
                if lacks_room(error):
                    self._no_room(directory)
            else:
                log.close_files()
                self._fail(directory, error)
            return False
        directory.renamed_logs = True
        former, place = self.logs.get(key), self._places.get(key)
        self.logs[key], self._places[key] = log, directory
        self._checkpoints.moved_logs[log] = None
        between(log)
        if former is not None and place is not None:
            self._condemn(place, former, now_ms)
        return True

    def deletion_work(self, now_ms: int) -> Callable[[], list[DirectoryFailure]] | None:
        """All steps of `deletion_steps` at once."""
        return at_once(self.deletion_steps(now_ms))

    def deletion_steps(self, now_ms: int) -> Stepwise[Callable[[], list[DirectoryFailure]] | None]:
        """Work that removes the files and directories that are due; None if there are none."""
        pieces: list[Piece] = []
        for done, (key, log) in enumerate(list(self.logs.items()), 1):
            piece = log.deletion_work(now_ms)
            if piece is not None and key in self._places:
                pieces.append((self._places[key], piece))
            if done % LOGS_IN_A_STEP == 0:
                yield
        pieces += self._condemned.take_due(now_ms)
        return partial(run_all, pieces) if pieces else None

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention to every log; returns the number of deleted segments."""
        count = 0
        for log in list(self.logs.values()):
            try:
                count += log.delete_old_segments(now_ms)
            except KafkaError as error:
                # If the disk failed, the directory is offline now; a full disk is retried the next time.
                _log.warning("%s", error)
        return count

    def need_flush(self, candidates: Iterable[PartitionLog]) -> list[PartitionLog]:
        """Those of the `flush_candidates` that may need a flush now. Others are no candidates until they change."""
        found = []
        for log in candidates:
            key = (log.topic, log.partition)
            if self.logs.get(key) is log and not log.flushes.are_out_of_question:
                found.append(log)
            elif self.futures.logs.get(key) is not log:
                self.flush_candidates.pop(log, None)
        return found

    # -- checkpoints and shutdown

    def checkpoint_work(self, *names: str) -> Callable[[], list[DirectoryFailure]]:
        """Work that writes the named checkpoints (all kinds by default) of every directory that has room."""
        return partial(run_all, self._checkpoints.pieces(self.online, *names))

    def close(self, broker_epoch: int) -> None:
        """Clean shutdown: flush every log, then write the checkpoints, then the marker. Slow."""
        self._is_closed = True
        closed: dict[PartitionLog, None] = {}
        for directory in list(self.online):
            many = [log for key, log in self.logs.items() if self._places[key] is directory]
            if len(many) >= MANY_SYNCS:
                try:
                    if CloseLogs(directory, many)():
                        closed |= dict.fromkeys(many)
                    else:
                        directory.disk.sync_soon(directory.path)
                except (OSError, KafkaError) as error:
                    self._fail(directory, error if isinstance(error, OSError) else OSError(str(error)))
        for logs, places in ((self.logs, self._places), (self.futures.logs, self.futures.places)):
            for key, log in list(logs.items()):
                if log in closed or key not in places:
                    continue  # or its directory failed with one of the logs before
                try:
                    log.close()
                except (OSError, KafkaError) as error:
                    self._fail(places[key], error if isinstance(error, OSError) else OSError(str(error)))
        self.note_failures(run_all(self._checkpoints.last_pieces(self.online)))
        for settle in self.settle_work():
            self.note_failures(settle())
        for directory in self.directories:
            if directory.failure is None:
                try:
                    directory.mark_clean(broker_epoch, self._empty_logs(directory))
                except OSError as error:
                    self._fail(directory, error)
            directory.unlock()

    def _empty_logs(self, directory: LogDirectory) -> EmptyLogs:
        """The logs in it whose directories hold nothing but their topic ids, durably. Raises OSError."""
        empty: dict[tuple[str, int], EmptyLog] = {}
        for key, log in self.logs.items():
            if self._places[key] is directory and log.has_no_files and key not in directory.new_topic_ids:
                # A directory that somebody removed is none.
                with suppress(FileNotFoundError):
                    if log.topic_id is not None:
                        empty[key] = EmptyLog(log.topic_id, directory.disk.changed_ns(log.directory))
        return empty

    def abandon(self) -> None:
        """Release everything as it is, without a marker, after a failed start. Does nothing after `close`."""
        if self._is_closed:
            return
        for log in [*self.logs.values(), *self.futures.logs.values()]:
            log.close_files()
        for directory in self.directories:
            directory.unlock()
