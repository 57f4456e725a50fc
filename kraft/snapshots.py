"""Snapshots of the metadata as files (KIP-630): `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`.

A file is a run of record batches: a control batch with the SnapshotHeader and, from `kraft.version` 1 on, with that
level and the voters; data batches; a control batch with the SnapshotFooter. It is written as `.checkpoint.part` and
gets its name only when it is whole and synced. The same records give the same bytes on every node: timestamps are that
of the last record of the log that is contained, and batches are cut by size alone. Knows nothing of what the records
mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from barnabas.kraft.metadata.image import MINIMUM_METADATA_VERSION
from barnabas.kraft.metadata.record_versions import encode_records
from barnabas.kraft.raft.history import LOG_ORIGIN, OffsetAndEpoch
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.voter_records import QuorumRecordBody, quorum_record, record_bodies
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from barnabas.protocol.records.batch import CorruptBatch, crc_is_valid, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import build_raft_control_batch, read_raft_control_record
from barnabas.protocol.records.metadata import decode_metadata_record
from barnabas.protocol.records.record import Record, decode_records
from barnabas.protocol.schema import Message
from barnabas.runtime.world import Disk, File

PART_SUFFIX = ".part"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
BOOTSTRAP_SNAPSHOT = LOG_ORIGIN
"""The snapshot in which `format` writes the first voters: it contains no record of the log."""
BATCH_BYTES = 512 * 1024
"""Records are put into one batch up to about so many bytes."""

MAX_BATCH_BYTES = 256 << 20
"""No batch of a snapshot is larger; a length above it is damage, not data."""

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


class CorruptSnapshotFile(Exception):
    """The file is not a complete snapshot; the message names the file and the fault."""


def snapshot_file_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"


def parse_snapshot_file_name(name: str) -> OffsetAndEpoch | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return OffsetAndEpoch(offset=int(match.group(1)), epoch=int(match.group(2)))


@dataclass(frozen=True, slots=True)
class SnapshotBatch:
    """Some of the records of a snapshot."""

    records: list[Message]


class SnapshotFiles:
    """The snapshots in one directory. Synchronous; owned by one metadata log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Lists the snapshots, and removes partial files of an interrupted write or download."""
        self._disk = disk
        self._directory = directory
        self.ids: list[OffsetAndEpoch] = []
        """Oldest first. The one with offset 0 that Kafka's format tool writes is not listed: it is
        bootstrap."""
        for name in disk.list(directory):
            snapshot = parse_snapshot_file_name(name)
            if name.endswith(".checkpoint" + PART_SUFFIX):
                disk.remove(f"{directory}/{name}")
            elif snapshot is not None and snapshot.offset > 0:
                self.ids.append(snapshot)
        self.ids.sort(key=lambda snapshot: snapshot.offset)

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self.ids[-1] if self.ids else None

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot_file_name(snapshot)}"

    def size_bytes(self, snapshot: OffsetAndEpoch) -> int | None:
        """None if there is no such snapshot."""
        return self._disk.size(self.path(snapshot)) if snapshot in self.ids else None

    def read(self, snapshot: OffsetAndEpoch, position: int, count: int) -> bytes:
        """Bytes of a snapshot, for a replica that downloads it."""
        file = self._disk.open(self.path(snapshot))
        try:
            return file.pread(count, position)
        finally:
            file.close()

    def open_part(self, snapshot: OffsetAndEpoch) -> File:
        """An empty file for a snapshot that is about to be written or downloaded."""
        file = self._disk.open(self.path(snapshot) + PART_SUFFIX, create=True)
        file.truncate(0)
        return file

    def write(
        self,
        snapshot: OffsetAndEpoch,
        records: Iterable[Message],
        timestamp_ms: int,
        quorum_records: Iterable[QuorumRecord] = (),
    ) -> None:
        """Write and sync a whole snapshot under its part name; `publish` it then. Slow: may run in a
        thread."""
        file = self.open_part(snapshot)
        try:
            position = 0
            for batch in encode_snapshot(snapshot, records, timestamp_ms, quorum_records):
                file.pwrite(batch, position)
                position += len(batch)
            file.sync()
        finally:
            file.close()

    def verify_part(self, snapshot: OffsetAndEpoch) -> None:
        """Sync a downloaded file and read it through. Raises CorruptSnapshotFile. Slow: may run in a
        thread."""
        path = self.path(snapshot) + PART_SUFFIX
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()
        for _ in read_snapshot(self._disk, path):
            pass

    def publish(self, snapshot: OffsetAndEpoch) -> None:
        """Give the part its name, durably. May run in a thread, and again if it failed; then call `published`."""
        part = self.path(snapshot) + PART_SUFFIX
        if self._disk.exists(part):
            self._disk.rename(part, self.path(snapshot))
        self._disk.sync_directory(self._directory)

    def published(self, snapshot: OffsetAndEpoch) -> None:
        if snapshot not in self.ids:
            self.ids.append(snapshot)
            self.ids.sort(key=lambda known: known.offset)

    def quorum_records_of_part(self, snapshot: OffsetAndEpoch) -> list[QuorumRecord]:
        """Level and voters in a downloaded file. Raises CorruptSnapshotFile."""
        return read_quorum_records(self._disk, self.path(snapshot) + PART_SUFFIX, snapshot)

    def remove_part(self, snapshot: OffsetAndEpoch) -> None:
        path = self.path(snapshot) + PART_SUFFIX
        if self._disk.exists(path):
            self._disk.remove(path)

    def remove_before(self, snapshot: OffsetAndEpoch) -> None:
        """Remove the snapshots older than this one."""
        for known in [known for known in self.ids if known.offset < snapshot.offset]:
            self._disk.remove(self.path(known))
            self.ids.remove(known)

    def records(self, snapshot: OffsetAndEpoch) -> tuple[int, list[Message]]:
        """(timestamp of the last record of the log that is contained, all records). Raises
        CorruptSnapshotFile."""
        return load_snapshot(self._disk, self.path(snapshot))

    def quorum_records(self) -> list[QuorumRecord]:
        """Level and voters as of the newest snapshot, or those that `format` wrote. Raises CorruptSnapshotFile."""
        snapshot = self.latest or BOOTSTRAP_SNAPSHOT
        return read_quorum_records(self._disk, self.path(snapshot), snapshot)


def encode_snapshot(
    snapshot: OffsetAndEpoch,
    records: Iterable[Message],
    timestamp_ms: int,
    quorum_records: Iterable[QuorumRecord] = (),
) -> Iterator[bytes]:
    """The batches of a snapshot file, its records in the versions of the level that its first record says."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
    head = [header, *record_bodies(quorum_records)]
    yield build_raft_control_batch(head, 0, snapshot.epoch, timestamp_ms)
    offset = len(head)
    waiting: list[Record] = []
    waiting_bytes = 0
    for value in encode_records(records, MINIMUM_METADATA_VERSION):
        waiting.append(Record(0, timestamp_ms, None, value))
        waiting_bytes += len(value)
        if waiting_bytes >= BATCH_BYTES:
            yield build_batch(waiting, base_offset=offset, leader_epoch=snapshot.epoch)
            offset += len(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield build_batch(waiting, base_offset=offset, leader_epoch=snapshot.epoch)
        offset += len(waiting)
    yield build_raft_control_batch([SnapshotFooterRecord()], offset, snapshot.epoch, timestamp_ms)


def read_snapshot(
    disk: Disk, path: str, *, decodes: bool = True
) -> Iterator[SnapshotHeaderRecord | QuorumRecordBody | SnapshotBatch]:
    """The header, level and voters, then the records batch by batch; empty batches if it does not decode them.

    Raises CorruptSnapshotFile unless all of it is sound.
    """
    file = disk.open(path)
    try:
        yield from _read_snapshot(file, path, decodes=decodes)
    except (CorruptBatch, MalformedMessage) as error:
        raise CorruptSnapshotFile(f"{path}: {error}") from error
    finally:
        file.close()


def _read_snapshot(
    file: File, path: str, *, decodes: bool
) -> Iterator[SnapshotHeaderRecord | QuorumRecordBody | SnapshotBatch]:
    position, size = 0, file.size()
    begun = ended = False
    while position < size:
        if ended:
            raise CorruptSnapshotFile(f"{path}: something follows the footer")
        header = read_header(file.pread(61, position))
        if header.size_bytes > min(size - position, MAX_BATCH_BYTES):
            raise CorruptSnapshotFile(f"{path}: the batch at {position} reaches beyond the end")
        data = file.pread(header.size_bytes, position)
        if not crc_is_valid(data, 0, header):
            raise CorruptSnapshotFile(f"{path}: wrong CRC in the batch at {position}")
        records = decode_records(data) if decodes or header.is_control else []
        if header.is_control:
            for record in records:
                body = read_raft_control_record(record)
                if isinstance(body, SnapshotHeaderRecord):
                    begun = True
                    yield body
                elif isinstance(body, KRaftVersionRecord | VotersRecord):
                    yield body
                elif isinstance(body, SnapshotFooterRecord):
                    ended = True
        if not begun:
            raise CorruptSnapshotFile(f"{path}: does not begin with a header")
        if not header.is_control:
            yield SnapshotBatch([decode_metadata_record(record.value or b"")[0] for record in records])
        position += header.size_bytes
    if not ended:
        raise CorruptSnapshotFile(f"{path}: ends without a footer")


def load_snapshot(disk: Disk, path: str) -> tuple[int, list[Message]]:
    """(timestamp in the header, all records). Raises CorruptSnapshotFile."""
    timestamp_ms = -1
    messages: list[Message] = []
    for part in read_snapshot(disk, path):
        if isinstance(part, SnapshotBatch):
            messages.extend(part.records)
        elif isinstance(part, SnapshotHeaderRecord):
            timestamp_ms = part.last_contained_log_timestamp
    return timestamp_ms, messages


def read_quorum_records(disk: Disk, path: str, snapshot: OffsetAndEpoch) -> list[QuorumRecord]:
    """Level and voters in a snapshot, before its first data; none if there is no such file."""
    found: list[QuorumRecord] = []
    if not disk.exists(path):
        return found
    for part in read_snapshot(disk, path, decodes=False):
        if isinstance(part, SnapshotBatch):
            break
        if isinstance(part, KRaftVersionRecord | VotersRecord):
            try:
                found.append(quorum_record(snapshot.offset - 1, part))
            except CorruptBatch as error:
                raise CorruptSnapshotFile(f"{path}: {error}") from error
    return found


def read_bootstrap_records(disk: Disk, directory: str) -> list[Message]:
    """The first records of a new cluster, from `bootstrap.checkpoint`; none if there is no such file.

    The first active controller writes them into an empty log. Raises CorruptSnapshotFile.
    """
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    return load_snapshot(disk, path)[1] if disk.exists(path) else []
