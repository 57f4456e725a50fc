"""One log dir: its identity, the state in which its last owner left it, and the small files about all its logs.

`meta.properties` (version 1) ties the directory to a cluster and a node and gives it an id (KIP-858); `.lock` keeps a
second process out; `.kafka_cleanshutdown` marks a clean shutdown and its broker epoch (KIP-966). Knows no logs.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.runtime.world import Disk
from barnabas.settings.errors import SettingsError
from barnabas.settings.properties import parse_properties
from barnabas.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TOPIC_ID_CHECKPOINT,
    MalformedCheckpoint,
    PartitionOffsets,
    format_topic_ids,
    parse_topic_ids,
    read_offsets,
    write_durably,
    write_offsets,
)
from barnabas.storage.empty_logs import EmptyLogs, take_empty_logs, write_empty_logs
from barnabas.storage.names import EPOCH_FILE
from barnabas.storage.open_files import OpenFiles

_log = logging.getLogger(__name__)

META_PROPERTIES_FILE = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
BOOT_FILE = ".boot_id"
"""Not in Kafka: boot id of the machine, written after all logs had been opened."""

_META_VERSION = "1"
_CLEAN_SHUTDOWN_VERSION = 0
NO_BROKER_EPOCH = -1


class LogDirectoryError(Exception):
    """The node cannot start with this directory; the one-line message names the directory and the reason."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Owner of a directory."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None
    """None in files of old versions."""

    def format(self) -> bytes:
        lines = {"cluster.id": self.cluster_id, "node.id": str(self.node_id), "version": _META_VERSION}
        if self.directory_id is not None:
            lines["directory.id"] = uuid_to_string(self.directory_id)
        return "".join(f"{key}={value}\n" for key, value in sorted(lines.items())).encode()

    @classmethod
    def parse(cls, data: bytes, name: str) -> MetaProperties:
        """Raises `LogDirectoryError`."""
        try:
            found = {key: value for key, (value, _) in parse_properties(data.decode(), name).items()}
        except (SettingsError, UnicodeDecodeError) as error:
            raise LogDirectoryError(f"{name}: {error}") from None
        if found.get("version") != _META_VERSION:
            raise LogDirectoryError(f"{name}: version {found.get('version')}, expected {_META_VERSION}")
        try:
            directory_id = uuid_from_string(found["directory.id"]) if "directory.id" in found else None
            return cls(found["cluster.id"], int(found["node.id"]), directory_id)
        except KeyError as error:
            raise LogDirectoryError(f"{name}: {error.args[0]} is missing") from None
        except ValueError as error:
            raise LogDirectoryError(f"{name}: {error}") from None


def format_directory(disk: Disk, path: str, properties: MetaProperties) -> None:
    """Make `path` a log dir of that node; an existing identity is replaced. Raises OSError."""
    make_directory(disk, path)
    write_durably(disk, f"{path}/{META_PROPERTIES_FILE}", properties.format())


def make_directory(disk: Disk, path: str) -> None:
    """Create it with its parents, durably: a power cut must not remove all of it with an unsynced entry. Raises
    OSError.
    """
    missing = []
    path = path.rstrip("/")
    while path and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    if missing:
        disk.make_directories(missing[0])
    for made in missing:
        disk.sync_directory(made.rpartition("/")[0] or ("/" if made.startswith("/") else "."))


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """None if the directory was never formatted. Raises `LogDirectoryError`, OSError."""
    name = f"{path}/{META_PROPERTIES_FILE}"
    if not disk.exists(name):
        return None
    return MetaProperties.parse(disk.read_bytes(name), name)


class LogDirectory:
    """An open log dir of this node. `failure` is set permanently when its disk fails."""

    __slots__ = (
        "_checkpoint_lock",
        "_unlock",
        "_written",
        "cleaned_offsets",
        "disk",
        "empty_logs",
        "failure",
        "files",
        "high_watermarks",
        "holds_replicas",
        "is_closed_for_room",
        "knows_recovery_points",
        "log_start_offsets",
        "lost_power",
        "new_topic_ids",
        "path",
        "previous_broker_epoch",
        "properties",
        "recovery_points",
        "renamed_logs",
        "takes_replicas",
        "was_clean",
    )

    def __init__(self, disk: Disk, path: str, files: OpenFiles | None = None, *, takes_replicas: bool = True) -> None:
        self.disk = disk
        self.path = path
        self.files = OpenFiles() if files is None else files
        """The open files of all logs of the node."""
        self.takes_replicas = takes_replicas
        """True if new replicas may be placed here: false for a `metadata.log.dir` that is not in `log.dirs`."""
        self.holds_replicas = takes_replicas
        """True if the controller must know it: it may hold replicas, perhaps from a time when replicas were placed
        in `metadata.log.dir`, too.
        """
        self.properties: MetaProperties | None = None
        self.failure: OSError | None = None
        self.is_closed_for_room = False
        """Too full for appends, see `LogDirectories.close_for_room`."""
        self.was_clean = False
        """True if the last owner stopped cleanly; known after `begin`."""
        self.lost_power = False
        """True if unsynced writes of the last owner may be lost, in parts; known after `begin`."""
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """Broker epoch of the last owner if it lost nothing: it stopped cleanly, or was killed while the machine went
        on. Known after `note_last_stop`."""
        self.recovery_points: dict[tuple[str, int], int] = {}
        self.log_start_offsets: dict[tuple[str, int], int] = {}
        self.high_watermarks: dict[tuple[str, int], int] = {}
        self.cleaned_offsets: dict[tuple[str, int], int] = {}
        """These four as the last owner left them; known after `begin`, until `forget_last_run`."""
        self.knows_recovery_points = False
        """False if their checkpoint is missing or unreadable, or was never written."""
        self.empty_logs: EmptyLogs = {}
        """Logs that had no record when the last owner stopped cleanly; known after `begin`, until `forget_last_run`."""
        self.new_topic_ids: dict[tuple[str, int], bytes] = {}
        """Topic ids of logs whose `partition.metadata` may not be durable; durable themselves. Known after `begin`."""
        self.renamed_logs = False
        """True if logs were renamed since `note_new_logs` last made names durable."""
        self._unlock: Callable[[], None] | None = None
        # Checkpoints are written from worker threads and, before a truncation of flushed records, by the owner.
        self._checkpoint_lock = threading.Lock()
        self._written: dict[str, PartitionOffsets] = {}

    @property
    def directory_id(self) -> bytes | None:
        """None if its disk failed before it could be read."""
        return self.properties.directory_id if self.properties is not None else None

    @property
    def lock_path(self) -> str:
        return f"{self.path}/{LOCK_FILE}"

    def lock(self) -> None:
        """Raises `LogDirectoryError` if another process has the lock, OSError if the disk fails."""
        try:
            self._unlock = self.disk.lock(self.lock_path)
        except BlockingIOError:
            raise LogDirectoryError(f"{self.path} is in use by another process") from None

    def unlock(self) -> None:
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    def note_last_stop(self) -> None:
        """Read the broker epoch of the last owner if it lost nothing, which a broker sends when it registers, before it
        opens its logs. The marker of a clean stop stays until `begin`; if the node crashes before, its epoch is
        outdated. Raises OSError.
        """
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if self.disk.exists(marker):
            self.previous_broker_epoch = parse_clean_shutdown(self.disk.read_bytes(marker))
        else:
            self.previous_broker_epoch = self._epoch_before_a_kill()

    def _epoch_before_a_kill(self) -> int:
        """Broker epoch of an owner that was killed on this boot of the machine; -1 otherwise. A failed sync removes the
        file: unwritten data may have left the page cache then.
        """
        note = f"{self.path}/{EPOCH_FILE}"
        if not self.disk.exists(note):
            return NO_BROKER_EPOCH
        boot_id, _, epoch = self.disk.read_bytes(note).decode(errors="replace").partition(" ")
        is_same_boot = bool(boot_id) and boot_id == self.disk.boot_id()
        return int(epoch) if is_same_boot and epoch.isascii() and epoch.isdigit() else NO_BROKER_EPOCH

    def note_epoch(self, broker_epoch: int) -> None:
        """The node is registered in this broker epoch. Raises OSError."""
        write_durably(self.disk, f"{self.path}/{EPOCH_FILE}", f"{self.disk.boot_id()} {broker_epoch}".encode())

    def begin(self) -> None:
        """Read the state left by the last owner and remove the marker: from now on a stop is a crash.

        Raises OSError.
        """
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        self.recovery_points = self._offsets(RECOVERY_POINT_CHECKPOINT)
        self.knows_recovery_points = bool(self.recovery_points)
        self.log_start_offsets = self._offsets(LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = self._offsets(REPLICATION_OFFSET_CHECKPOINT)
        self.cleaned_offsets = self._offsets(CLEANER_OFFSET_CHECKPOINT)
        self.new_topic_ids = self._topic_ids()
        self.lost_power = self._has_booted()
        epoch = NO_BROKER_EPOCH
        if self.disk.exists(marker):
            epoch = parse_clean_shutdown(self.disk.read_bytes(marker))
            self.disk.remove(marker)
            self.was_clean = True
        self.empty_logs = take_empty_logs(self.disk, self.path, epoch)
        # Also after a kill: some logs may have been about to get their names then.
        self.disk.sync_directory(self.path)

    def has_notes_about(self, key: tuple[str, int]) -> bool:
        """True if the last owner noted that the log of `key` has had records."""
        notes = (self.recovery_points, self.log_start_offsets, self.high_watermarks, self.cleaned_offsets)
        return any(offsets.get(key, 0) for offsets in notes)

    def forget_last_run(self) -> None:
        """All logs are open: free what the last owner noted about them."""
        self.recovery_points, self.log_start_offsets, self.high_watermarks, self.cleaned_offsets = {}, {}, {}, {}
        self.empty_logs = {}

    def _has_booted(self) -> bool:
        """True if the machine has booted since the last owner opened its logs. An owner that keeps no boot id, such as
        Kafka, counts as killed.
        """
        now, note = self.disk.boot_id(), f"{self.path}/{BOOT_FILE}"
        return not now or (self.disk.exists(note) and self.disk.read_bytes(note) != now.encode())

    def note_boot(self) -> None:
        """All logs are open, and recovered if necessary. Durable when it returns. Raises OSError."""
        now, note = self.disk.boot_id().encode(), f"{self.path}/{BOOT_FILE}"
        if now and not (self.disk.exists(note) and self.disk.read_bytes(note) == now):
            write_durably(self.disk, note, now)

    def _offsets(self, name: str) -> dict[tuple[str, int], int]:
        """An unreadable checkpoint counts as empty: recovery then checks everything."""
        try:
            return read_offsets(self.disk, f"{self.path}/{name}")
        except MalformedCheckpoint as error:
            _log.warning("%s", error)
            return {}

    def _topic_ids(self) -> dict[tuple[str, int], bytes]:
        name = f"{self.path}/{TOPIC_ID_CHECKPOINT}"
        try:
            return parse_topic_ids(self.disk.read_bytes(name), name) if self.disk.exists(name) else {}
        except MalformedCheckpoint as error:
            _log.warning("%s", error)
            return {}

    def note_new_logs(self, topic_ids: dict[tuple[str, int], bytes]) -> None:
        """Durable when it returns, like all names in the directory. Thread-safe. Raises OSError."""
        if self.renamed_logs:
            # Former logs must not return under these names, or an id would be taken for that of another log.
            self.renamed_logs = False
            self.disk.sync_directory(self.path)
        with self._checkpoint_lock:
            self._write_topic_ids({**self.new_topic_ids, **topic_ids})

    def forget_new_logs(self, topic_ids: dict[tuple[str, int], bytes]) -> None:
        """Their `partition.metadata` is durable, or they were removed. Thread-safe. Raises OSError."""
        # Removed logs must not return under their old names.
        self.disk.sync_directory(self.path)
        with self._checkpoint_lock:
            known = self.new_topic_ids.items()
            self._write_topic_ids({key: each for key, each in known if topic_ids.get(key) != each})

    def _write_topic_ids(self, topic_ids: dict[tuple[str, int], bytes]) -> None:
        write_durably(self.disk, f"{self.path}/{TOPIC_ID_CHECKPOINT}", format_topic_ids(topic_ids))
        self.new_topic_ids = topic_ids

    def write_checkpoint(self, name: str, offsets: PartitionOffsets) -> None:
        """Skips the write if the content is unchanged. Raises OSError."""
        with self._checkpoint_lock:
            if self._written.get(name) != offsets:
                self._written.pop(name, None)
                write_offsets(self.disk, f"{self.path}/{name}", offsets)
                self._written[name] = offsets

    def noted_recovery_point(self, key: tuple[str, int]) -> int:
        """The recovery point that a start would read, as far as this owner has written any; 0 while it is being
        written.
        """
        return self._written.get(RECOVERY_POINT_CHECKPOINT, {}).get(key, 0)

    def mark_clean(self, broker_epoch: int, empty_logs: EmptyLogs) -> None:
        """All logs are closed and durable; these have no record. Raises OSError."""
        if empty_logs and broker_epoch >= 0:
            write_empty_logs(self.disk, self.path, broker_epoch, empty_logs)
        write_durably(self.disk, f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch))

    def __repr__(self) -> str:
        return f"LogDirectory({self.path}{', offline' if self.failure is not None else ''})"


def format_clean_shutdown(broker_epoch: int) -> bytes:
    fields = {"version": _CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> int:
    """The broker epoch; -1 if the marker does not have it (it is a valid marker all the same)."""
    try:
        content = json.loads(data)
    except ValueError:
        return NO_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH
