"""Small text files that survive a crash: written to a temporary file, synced, renamed into place, and the directory
synced.

A checkpoint has a version line, a line with the number of entries, and one line per entry:

    0
    2
    orders 0 1042
    orders 1 998

`leader-epoch-checkpoint` has lines of `epoch start-offset` instead, `topic-id-checkpoint` of `topic partition
topic-id`. A truncated file, a wrong count or any other content raises `MalformedCheckpoint`; the caller decides whether
that is fatal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.runtime.world import Disk

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
TOPIC_ID_CHECKPOINT = "topic-id-checkpoint"
"""Not in Kafka: topic ids of logs so new that their `partition.metadata` may not be durable yet."""

_VERSION = 0

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of a file that is to replace the one without it."""

PartitionOffsets = Mapping[tuple[str, int], int]
"""(topic, partition) to offset."""


class MalformedCheckpoint(Exception):
    """The file is not a checkpoint; the message names the file, the line and the problem."""


def write_durably(disk: Disk, path: str, data: bytes) -> None:
    """Replace `path` by `data`: after any crash the file has either all of the old or all of the new bytes."""
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0] or ".")


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Replace `path` by `data`: after the end of the process, not of the machine, the file has either all of the old or
    all of the new bytes."""
    write_aside(disk, path, data)
    put_in_place(disk, path)


def write_aside(disk: Disk, path: str, data: bytes) -> None:
    """Write what is to replace `path`, without a sync."""
    file = disk.open(path + TEMPORARY_SUFFIX, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
    finally:
        file.close()


def put_in_place(disk: Disk, path: str) -> None:
    """Replace `path` by what was written aside."""
    disk.rename(path + TEMPORARY_SUFFIX, path)


def _format(lines: list[str]) -> bytes:
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def _parse(data: bytes, name: str, columns: int) -> list[list[str]]:
    """Fields of each entry. An empty file has no entries; Kafka creates such files."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(f"{name}: not text: {error}") from None
    if not lines:
        return []
    if _number(lines[0], name, 1) != _VERSION:
        raise MalformedCheckpoint(f"{name}: version {lines[0]}, expected {_VERSION}")
    if len(lines) == 1:
        return []
    count = _number(lines[1], name, 2)
    entries = []
    for number, line in enumerate(lines[2:], 3):
        fields = line.split()
        if len(fields) != columns:
            raise MalformedCheckpoint(f"{name} line {number}: expected {columns} fields: {line[:80]!r}")
        entries.append(fields)
    if len(entries) != count:
        raise MalformedCheckpoint(f"{name}: {len(entries)} entries; the header says {count}")
    return entries


def _number(text: str, name: str, line: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise MalformedCheckpoint(f"{name} line {line}: not a number: {text[:80]!r}") from None


def format_offsets(offsets: PartitionOffsets) -> bytes:
    return _format([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def parse_offsets(data: bytes, name: str) -> dict[tuple[str, int], int]:
    return {
        (topic, _number(partition, name, line)): _number(offset, name, line)
        for line, (topic, partition, offset) in enumerate(_parse(data, name, 3), 3)
    }


def format_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _format([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def parse_epochs(data: bytes, name: str) -> list[tuple[int, int]]:
    """(epoch, start offset) in file order."""
    return [
        (_number(epoch, name, line), _number(start_offset, name, line))
        for line, (epoch, start_offset) in enumerate(_parse(data, name, 2), 3)
    ]


def format_numbers(rows: Iterable[Sequence[int]]) -> bytes:
    """A checkpoint whose entries are numbers."""
    return _format([" ".join(map(str, row)) for row in rows])


def parse_numbers(data: bytes, name: str, columns: int) -> list[list[int]]:
    """Entries in file order."""
    return [
        [_number(field, name, line) for field in fields] for line, fields in enumerate(_parse(data, name, columns), 3)
    ]


def format_topic_ids(ids: Mapping[tuple[str, int], bytes]) -> bytes:
    return _format([f"{topic} {partition} {uuid_to_string(each)}" for (topic, partition), each in sorted(ids.items())])


def parse_topic_ids(data: bytes, name: str) -> dict[tuple[str, int], bytes]:
    ids = {}
    for line, (topic, partition, text) in enumerate(_parse(data, name, 3), 3):
        try:
            ids[topic, _number(partition, name, line)] = uuid_from_string(text)
        except ValueError:
            raise MalformedCheckpoint(f"{name} line {line}: not a topic id: {text[:80]!r}") from None
    return ids


def write_offsets(disk: Disk, path: str, offsets: PartitionOffsets) -> None:
    write_durably(disk, path, format_offsets(offsets))


def read_offsets(disk: Disk, path: str) -> dict[tuple[str, int], int]:
    """Empty if the file does not exist."""
    return parse_offsets(disk.read_bytes(path), path) if disk.exists(path) else {}
