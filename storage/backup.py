"""Copies the log directory of a node that may be running, and checks each batch on the way.

The files of a running node grow, and are deleted, compacted and truncated meanwhile. The copy of a partition holds
whole batches in the order of their offsets; if the partition's files were exchanged while they were copied, they are
copied again. Indexes are left out: a node rebuilds them, and recovers the copied logs as after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from barnabas.protocol.records.batch import CorruptBatch, crc_is_valid, iterate_batches
from barnabas.runtime.world import Disk
from barnabas.storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TOPIC_ID_CHECKPOINT,
)
from barnabas.storage.log_directory import META_PROPERTIES_FILE
from barnabas.storage.names import parse_directory_name

CHUNK_BYTES = 4 << 20
ATTEMPTS = 5
_ROOT_FILES = (
    REPLICATION_OFFSET_CHECKPOINT,  # before the logs: no high watermark is above the copied log end
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES_FILE,
    TOPIC_ID_CHECKPOINT,
    "bootstrap.checkpoint",
)
_LOG = ".log"
_SMALL_SUFFIXES = (".snapshot", ".checkpoint")
_SMALL_FILES = (LEADER_EPOCH_CHECKPOINT, "partition.metadata")


@dataclass(slots=True)
class Backup:
    """The result of a copy."""

    partitions: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """Damage in the source, and partitions that could not be copied; one line each."""


class _Exchanged(Exception):
    """Files were deleted, replaced or truncated while they were copied."""


def back_up(disk: Disk, source: str, target: str) -> Iterator[Backup]:
    """Copy the log directory `source` to the new directory `target`; the same `Backup` after each partition, and at the
    end. Raises OSError if `target` cannot be written."""
    backup = Backup()
    disk.make_directories(target)
    for name in _ROOT_FILES:
        _copy_small(disk, f"{source}/{name}", f"{target}/{name}")
    for name in disk.list(source):
        if not disk.is_directory(f"{source}/{name}"):
            continue
        parsed = parse_directory_name(name)
        if parsed is not None and parsed.kind == "current":
            _copy_partition(disk, f"{source}/{name}", f"{target}/{name}", backup)
            yield backup
    disk.sync_directory(target)
    yield backup


def _copy_partition(disk: Disk, source: str, target: str, backup: Backup) -> None:
    for _ in range(ATTEMPTS):
        if disk.exists(target):
            disk.remove_tree(target)
        disk.make_directories(target)
        try:
            copied = _copy_files(disk, source, target)
        except (_Exchanged, FileNotFoundError) as error:
            last = error
            continue
        backup.partitions += 1
        backup.bytes += copied
        disk.sync_directory(target)
        return
    if not disk.exists(source):
        disk.remove_tree(target)  # it was deleted
        return
    backup.problems.append(f"{source} could not be copied in {ATTEMPTS} attempts: {last}")


def _copy_files(disk: Disk, source: str, target: str) -> int:
    """The number of bytes of the copied segments."""
    segments = [name for name in disk.list(source) if name.endswith(_LOG)]
    copied = 0
    next_offset = -1
    for position, name in enumerate(segments):
        is_last = position == len(segments) - 1
        size, next_offset = _copy_segment(disk, (f"{source}/{name}", f"{target}/{name}"), next_offset, is_last)
        copied += size
    now = disk.list(source)
    if [name for name in now if name.endswith(_LOG)][: len(segments)] != segments:
        raise _Exchanged("its segments changed")
    for name in now:
        if name in _SMALL_FILES or name.endswith(_SMALL_SUFFIXES) or name == "quorum-state":
            _copy_small(disk, f"{source}/{name}", f"{target}/{name}")
    return copied


def _copy_segment(disk: Disk, paths: tuple[str, str], next_offset: int, is_last: bool) -> tuple[int, int]:
    """(bytes copied, the offset after the last batch). Raises `_Exchanged` for a batch that is not whole, unless it is
    the end of the last segment, which is being written."""
    source, target = (disk.open(path, create=path is paths[1]) for path in paths)
    try:
        end, position = source.size(), 0
        while position < end:
            data = source.pread(min(CHUNK_BYTES, end - position), position)
            whole, needed = 0, 0
            for at, header in iterate_batches(data):
                if not crc_is_valid(data, at, header) or header.base_offset < next_offset:
                    raise _Exchanged(f"{paths[0]}: no valid batch at byte {position + at}")
                next_offset = header.last_offset + 1
                whole = at + header.size_bytes
            if whole == 0:
                needed = int.from_bytes(data[8:12], "big") + 12 if len(data) >= 12 else 0
                if not len(data) < needed <= end - position:
                    break
                data = source.pread(needed, position)
                ((_, header),) = iterate_batches(data)
                if not crc_is_valid(data, 0, header) or header.base_offset < next_offset:
                    raise _Exchanged(f"{paths[0]}: no valid batch at byte {position}")
                next_offset, whole = header.last_offset + 1, needed
            target.pwrite(data[:whole], position)
            position += whole
        if position < end and not is_last:
            raise _Exchanged(f"{paths[0]}: no whole batch at byte {position}")
        target.sync()
    except CorruptBatch as error:
        raise _Exchanged(f"{paths[0]}: {error.message}") from None
    finally:
        source.close()
        target.close()
    return position, next_offset


def _copy_small(disk: Disk, source: str, target: str) -> None:
    """A file that is replaced as a whole; none if it is gone."""
    if not disk.exists(source):
        return
    data = disk.read_bytes(source)
    file = disk.open(target, create=True)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
