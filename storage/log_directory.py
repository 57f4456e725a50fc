"""One log dir: whose it is, what its last owner left behind, and the small files that speak of all logs in it.

`meta.properties` (version 1) ties the directory to a cluster and a node and gives it an id (KIP-858);
`.lock` keeps a second process out; `.kafka_cleanshutdown` says that the last stop was clean and in which
broker epoch (KIP-966). Knows no logs.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from protocol.primitives import uuid_from_string, uuid_to_string
from runtime.world import Disk
from settings.errors import SettingsError
from settings.properties import parse_properties
from storage.checkpoints import (
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

_log = logging.getLogger(__name__)

META_PROPERTIES_FILE = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
BOOT_FILE = ".boot_id"
"""Ours alone: since when the machine has had power, as of when all logs had been opened."""

_META_VERSION = "1"
_CLEAN_SHUTDOWN_VERSION = 0
NO_BROKER_EPOCH = -1


class LogDirectoryError(Exception):
    """The node cannot start with this directory; the message says in one line which one, and why."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """To whom a directory belongs."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None
    """None in files that an old version wrote."""

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
    """Make `path` a log dir of that node; an identity that is there already is replaced. Raises OSError."""
    make_directory(disk, path)
    write_durably(disk, f"{path}/{META_PROPERTIES_FILE}", properties.format())


def make_directory(disk: Disk, path: str) -> None:
    """With its parents, durably: a power cut must not take all of it away by an entry that was not synced. Raises
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
    """An open log dir of this node. `failure` is set for good once its disk failed."""

    __slots__ = (
        "_checkpoint_lock",
        "_unlock",
        "_written",
        "cleaned_offsets",
        "disk",
        "failure",
        "high_watermarks",
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
        "was_clean",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.properties: MetaProperties | None = None
        self.failure: OSError | None = None
        self.is_closed_for_room = False
        """Too full for appends, see `LogDirectories.close_for_room`."""
        self.was_clean = False
        """Whether the last owner stopped cleanly; known after `begin`."""
        self.lost_power = False
        """Whether what the last owner wrote and did not sync may be gone, in parts; known after `begin`."""
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """The last owner's, if it stopped cleanly; known after `note_last_stop`."""
        self.recovery_points: dict[tuple[str, int], int] = {}
        self.log_start_offsets: dict[tuple[str, int], int] = {}
        self.high_watermarks: dict[tuple[str, int], int] = {}
        self.cleaned_offsets: dict[tuple[str, int], int] = {}
        """These four as the last owner left them; known after `begin`."""
        self.knows_recovery_points = False
        """Else their checkpoint is gone, cannot be read, or was never written."""
        self.new_topic_ids: dict[tuple[str, int], bytes] = {}
        """Of the logs whose `partition.metadata` may not be durable; durable themselves. Known after `begin`."""
        self.renamed_logs = False
        """Whether logs lost their names since names were last made durable for `note_new_logs`."""
        self._unlock: Callable[[], None] | None = None
        # Checkpoints are written from worker threads and, before a truncation of flushed records, by the
        # owner.
        self._checkpoint_lock = threading.Lock()
        self._written: dict[str, PartitionOffsets] = {}

    @property
    def directory_id(self) -> bytes | None:
        """None if its disk failed before it could be read."""
        return self.properties.directory_id if self.properties is not None else None

    def lock(self) -> None:
        """Raises `LogDirectoryError` if another process has it, OSError if the disk fails."""
        try:
            self._unlock = self.disk.lock(f"{self.path}/{LOCK_FILE}")
        except BlockingIOError:
            raise LogDirectoryError(f"{self.path} is in use by another process") from None

    def unlock(self) -> None:
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    def note_last_stop(self) -> None:
        """In which epoch the last owner stopped cleanly: a broker tells it when it registers, before it may look at
        its logs. The marker stays until `begin`; should we crash before, its epoch is an old one. Raises OSError.
        """
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if self.disk.exists(marker):
            self.previous_broker_epoch = parse_clean_shutdown(self.disk.read_bytes(marker))

    def begin(self) -> None:
        """Take note of how the last owner left it, and take the marker away: from now on a stop is a crash.

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
        if self.disk.exists(marker):
            self.disk.remove(marker)
            self.disk.sync_directory(self.path)
            self.was_clean = True
        else:
            # Some logs may have been on the way to get their names when the process was killed.
            self.disk.sync_directory(self.path)

    def _has_booted(self) -> bool:
        """Since the last owner opened its logs. Who keeps no note of it, as Kafka, is taken for one that was killed."""
        now, note = self.disk.boot_id(), f"{self.path}/{BOOT_FILE}"
        return not now or (self.disk.exists(note) and self.disk.read_bytes(note) != now.encode())

    def note_boot(self) -> None:
        """All logs are open, and have been recovered if need be. Durable when it returns. Raises OSError."""
        now, note = self.disk.boot_id().encode(), f"{self.path}/{BOOT_FILE}"
        if now and not (self.disk.exists(note) and self.disk.read_bytes(note) == now):
            write_durably(self.disk, note, now)

    def _offsets(self, name: str) -> dict[tuple[str, int], int]:
        """A checkpoint that cannot be read counts as empty: recovery then looks at everything."""
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
        """Durable when it returns, and so are all names in the directory. From any thread. Raises OSError."""
        if self.renamed_logs:
            # What had these names before must not come back under them: an id would be taken for another log's.
            self.renamed_logs = False
            self.disk.sync_directory(self.path)
        with self._checkpoint_lock:
            self._write_topic_ids({**self.new_topic_ids, **topic_ids})

    def forget_new_logs(self, topic_ids: dict[tuple[str, int], bytes]) -> None:
        """What `partition.metadata` says of them is durable, or they are gone. From any thread. Raises OSError."""
        # Those that are gone must not come back under their old names.
        self.disk.sync_directory(self.path)
        with self._checkpoint_lock:
            known = self.new_topic_ids.items()
            self._write_topic_ids({key: each for key, each in known if topic_ids.get(key) != each})

    def _write_topic_ids(self, topic_ids: dict[tuple[str, int], bytes]) -> None:
        write_durably(self.disk, f"{self.path}/{TOPIC_ID_CHECKPOINT}", format_topic_ids(topic_ids))
        self.new_topic_ids = topic_ids

    def write_checkpoint(self, name: str, offsets: PartitionOffsets) -> None:
        """Nothing is written if that is what was written last. Raises OSError."""
        with self._checkpoint_lock:
            if self._written.get(name) != offsets:
                self._written.pop(name, None)
                write_offsets(self.disk, f"{self.path}/{name}", offsets)
                self._written[name] = offsets

    def noted_recovery_point(self, key: tuple[str, int]) -> int:
        """The one that a start would be told, as far as this owner has written any; 0 while it is being written."""
        return self._written.get(RECOVERY_POINT_CHECKPOINT, {}).get(key, 0)

    def mark_clean(self, broker_epoch: int) -> None:
        """All logs are closed and durable. Raises OSError."""
        write_durably(self.disk, f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch))

    def __repr__(self) -> str:
        return f"LogDirectory({self.path}{', offline' if self.failure is not None else ''})"


def format_clean_shutdown(broker_epoch: int) -> bytes:
    fields = {"version": _CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> int:
    """The broker epoch; -1 if the marker does not tell it (it counts as a marker all the same)."""
    try:
        content = json.loads(data)
    except ValueError:
        return NO_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH
