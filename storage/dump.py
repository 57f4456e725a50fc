"""Shell: prints the content of log files: `python -m barnabas.storage.dump FILE…`.

Reads segments, metadata snapshots, indexes, producer snapshots and checkpoints, of Kafka and of Barnabas, and changes
nothing. The type of a file follows from its name. For a file of another format it prints one line to stderr, and the
exit status is 1.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import group_log, metadata_log, remote_log_metadata, share_log, transaction_log
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, CorruptBatch, crc_is_valid, read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import EndTxn, control_type, read_end_txn, read_raft_control_record
from barnabas.protocol.records.coordinator import RecordType, decode_key, decode_versioned, record_types
from barnabas.protocol.records.metadata import Types, decode_metadata_record, types_of
from barnabas.protocol.records.record import CLIENT_LIMIT_BYTES, SERVED_LIMIT_RECORDS, Record, decode_in_slices
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.world import Disk, File
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC
from barnabas.storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    TOPIC_ID_CHECKPOINT,
    MalformedCheckpoint,
    parse_epochs,
    parse_offsets,
    parse_topic_ids,
)
from barnabas.storage.empty_logs import EMPTY_LOGS_FILE
from barnabas.storage.gap_epochs import GAP_EPOCHS_FILE
from barnabas.storage.indexes import CorruptIndex
from barnabas.storage.log_directory import BOOT_FILE, CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE
from barnabas.storage.names import (
    EPOCH_FILE,
    LOG_SUFFIX,
    METADATA_TOPIC,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_offset_file_name,
)
from barnabas.storage.partition_metadata import PARTITION_METADATA_FILE
from barnabas.storage.producer_snapshot_format import CorruptSnapshot, decode_snapshot
from barnabas.storage.transaction_index import read_entries

METADATA_SNAPSHOT_SUFFIX = ".checkpoint"
_SHOWN_BYTES = 200
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TEXT_FILES = frozenset(
    {
        BOOT_FILE,
        CLEAN_SHUTDOWN_FILE,
        EMPTY_LOGS_FILE,
        EPOCH_FILE,
        GAP_EPOCHS_FILE,
        META_PROPERTIES_FILE,
        PARTITION_METADATA_FILE,
    }
)


_COORDINATED: Mapping[str, ModuleType] = {
    "__consumer_offsets": group_log,
    "__transaction_state": transaction_log,
    "__share_group_state": share_log,
}

ShowRecord = Callable[[Record], str]


class NotDumpable(Exception):
    """Reason in one line why a file cannot be printed."""


def dump_lines(disk: Disk, path: str, *, records: bool = True) -> Iterator[str]:
    """Content of the file, line by line. Raises OSError, and `NotDumpable` after the lines before the damage."""
    name = path.rpartition("/")[2]
    stem = name.removesuffix(".deleted").removesuffix(".swap").removesuffix(".cleaned")
    if stem.endswith((LOG_SUFFIX, METADATA_SNAPSHOT_SUFFIX)):
        yield from _segment_lines(disk, path, _reader_for(path, stem) if records else None)
    elif stem.endswith((OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
        parsed = parse_offset_file_name(stem)
        if parsed is None:
            raise NotDumpable("the file name must begin with a base offset of twenty digits")
        yield from _index_lines(disk.read_bytes(path), parsed[0], is_time=stem.endswith(TIME_INDEX_SUFFIX))
    elif stem.endswith(TRANSACTION_INDEX_SUFFIX):
        yield from _aborted_lines(disk.read_bytes(path), path)
    elif stem.endswith(SNAPSHOT_SUFFIX):
        yield from _producer_lines(disk.read_bytes(path))
    elif stem == LEADER_EPOCH_CHECKPOINT:
        for epoch, start_offset in _parsed(parse_epochs, disk.read_bytes(path)):
            yield f"epoch {epoch} from offset {start_offset}"
    elif stem == TOPIC_ID_CHECKPOINT:
        for (topic, partition), topic_id in _parsed(parse_topic_ids, disk.read_bytes(path)).items():
            yield f"{topic}-{partition} {uuid_to_string(topic_id)}"
    elif stem in _TEXT_FILES:
        yield from disk.read_bytes(path).decode("utf-8", "replace").splitlines()
    elif stem.endswith("-checkpoint"):
        for (topic, partition), offset in _parsed(parse_offsets, disk.read_bytes(path)).items():
            yield f"{topic}-{partition} {offset}"
    else:
        raise NotDumpable(
            "not a file of a log: expected .log, .checkpoint, .index, .timeindex, .txnindex, .snapshot, *-checkpoint"
        )


def _parsed(parse: Any, data: bytes) -> Any:
    try:
        return parse(data, "malformed")
    except MalformedCheckpoint as error:
        raise NotDumpable(str(error)) from None


def _reader_for(path: str, stem: str) -> ShowRecord:
    """Decoder of records, if the nodes themselves write the topic."""
    if stem.endswith(METADATA_SNAPSHOT_SUFFIX):
        return partial(_metadata, types_of(metadata_log))
    directory = path.rpartition("/")[0].rpartition("/")[2]
    topic = directory.rpartition("-")[0]
    if topic == METADATA_TOPIC:
        return partial(_metadata, types_of(metadata_log))
    if topic == REMOTE_METADATA_TOPIC:
        return partial(_metadata, types_of(remote_log_metadata))
    messages = _COORDINATED.get(topic)
    return _plain if messages is None else partial(_coordinated, record_types(messages))


def _segment_lines(disk: Disk, path: str, show: ShowRecord | None) -> Iterator[str]:
    """Without `show`, only the batches."""
    file = disk.open(path)
    try:
        position, size = 0, file.size()
        while position < size:
            header, data = batch_at(file, position, size)
            yield _batch_line(position, header)
            if not crc_is_valid(data, 0, header):
                raise NotDumpable(f"wrong CRC in the batch at byte {position}")
            if show is not None:
                for line in _record_lines(header, data, show):
                    yield f"  {line}"
            position += header.size_bytes
    finally:
        file.close()


def batch_at(file: File, position: int, size: int) -> tuple[BatchHeader, bytes]:
    """The complete batch at `position` of a segment of `size` bytes. Raises `NotDumpable`."""
    try:
        header = read_header(file.pread(BATCH_HEADER_BYTES, position))
    except CorruptBatch as error:
        rest = file.pread(min(size - position, 1 << 20), position)
        if not rest.strip(b"\0"):
            raise NotDumpable(f"zeros from byte {position} on") from None
        raise NotDumpable(f"no valid batch at byte {position}: {error.message}") from None
    if position + header.size_bytes > size:
        raise NotDumpable(f"the batch at byte {position} has {header.size_bytes} bytes, {size - position} are left")
    return header, file.pread(header.size_bytes, position)


def _batch_line(position: int, header: BatchHeader) -> str:
    try:
        codec = Compression(header.compression).name.lower()
    except ValueError:
        codec = f"codec {header.compression}"
    parts = [
        f"offsets {header.base_offset} to {header.last_offset}",
        f"at byte {position}",
        f"{header.size_bytes} bytes",
        f"{header.records_count} records",
        f"epoch {header.partition_leader_epoch}",
        f"magic {header.magic}",
        codec,
        f"max timestamp {header.max_timestamp}",
        f"crc {header.crc:08x}",
    ]
    if header.is_log_append_time:
        parts.append("log append time")
    if header.has_producer_id:
        parts.append(f"producer {header.producer_id} epoch {header.producer_epoch}")
        parts.append(f"sequence {header.base_sequence} to {header.last_sequence}")
    if header.is_transactional:
        parts.append("transactional")
    if header.is_control:
        parts.append("control")
    if header.has_delete_horizon:
        parts.append(f"delete horizon {header.delete_horizon_ms}")
    return ", ".join(parts)


def _record_lines(header: BatchHeader, data: bytes, show: ShowRecord) -> Iterator[str]:
    try:
        for records in decode_in_slices(memoryview(data), CLIENT_LIMIT_BYTES, SERVED_LIMIT_RECORDS):
            for record in records:
                if header.is_control:
                    shown = _control(record, read_end_txn(data) if header.has_producer_id else None)
                else:
                    shown = show(record)
                yield f"offset {record.offset} timestamp {record.timestamp} {shown}"
    except CorruptBatch as error:
        raise NotDumpable(f"the records of the batch at offset {header.base_offset}: {error.message}") from None


def _control(record: Record, marker: EndTxn | None) -> str:
    if marker is not None:
        return f"{'commit' if marker.committed else 'abort'} by coordinator epoch {marker.coordinator_epoch}"
    kind = control_type(record)
    body = read_raft_control_record(record)
    name = kind.name.lower() if kind is not None else "unknown control record"
    return f"{name} {body}" if body is not None else name


def _plain(record: Record) -> str:
    shown = f"key {_bytes(record.key)} value {_bytes(record.value)}"
    return f"{shown} headers {[(key, _bytes(value)) for key, value in record.headers]}" if record.headers else shown


def _coordinated(types: Mapping[int, RecordType], record: Record) -> str:
    """A record of a coordinator; without a value it is a tombstone."""
    try:
        key = None if record.key is None else decode_key(types, record.key)
        if key is None:
            return f"of an unknown type: {_plain(record)}"
        if record.value is None:
            return f"{key} tombstone"
        value, version = decode_versioned(types[key.API_KEY].value, record.value)
    except MalformedMessage as error:
        return f"undecodable ({error}) {_plain(record)}"
    return f"{key} v{version} {value}"


def _metadata(types: Types, record: Record) -> str:
    try:
        message, version = decode_metadata_record(record.value or b"", types)
    except MalformedMessage as error:
        return f"undecodable ({error}) {_bytes(record.value)}"
    return f"v{version} {message}"


def _bytes(data: bytes | None) -> str:
    if data is None:
        return "null"
    shown = repr(data[:_SHOWN_BYTES])[1:]
    return shown if len(data) <= _SHOWN_BYTES else f"{shown}… ({len(data)} bytes)"


def _index_lines(data: bytes, base_offset: int, *, is_time: bool) -> Iterator[str]:
    entry = _TIME_ENTRY if is_time else _OFFSET_ENTRY
    # A segment that Kafka has open has preallocated indexes with zeros at their end.
    used = len(data.rstrip(b"\0"))
    entries = max(-(-used // entry.size), min(1, len(data) // entry.size) if len(data) == entry.size else 0)
    previous: tuple[int, int] | None = None
    for slot in range(entries):
        if (slot + 1) * entry.size > len(data):
            raise NotDumpable(f"{len(data)} bytes are not a multiple of {entry.size}")
        first, second = entry.unpack_from(data, slot * entry.size)
        if previous is not None and (first <= previous[0] or second < previous[1]):
            raise NotDumpable(f"entry {slot} does not increase: {previous} before {(first, second)}")
        previous = (first, second)
        if is_time:
            yield f"timestamp {first} offset {base_offset + second}"
        else:
            yield f"offset {base_offset + first} at byte {second}"
    if len(data) > entries * entry.size:
        yield f"{len(data) - entries * entry.size} preallocated bytes of zeros"


def _aborted_lines(data: bytes, path: str) -> Iterator[str]:
    try:
        for entry in read_entries(data, path):
            yield (
                f"producer {entry.producer_id} aborted offsets {entry.first_offset} to {entry.last_offset}, "
                f"last stable offset then {entry.last_stable_offset}"
            )
    except CorruptIndex as error:
        raise NotDumpable(f"not a transaction index: {error}") from None


def _producer_lines(data: bytes) -> Iterator[str]:
    try:
        entries: Sequence[Any] = decode_snapshot(data)
    except CorruptSnapshot as error:
        raise NotDumpable(f"not a producer snapshot: {error}") from None
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        where = f"offsets {last.first_offset} to {last.last_offset}" if last else "no batch"
        yield (
            f"producer {entry.producer_id} epoch {entry.epoch}, last sequence {entry.last_sequence}, {where}, "
            f"last timestamp {entry.last_timestamp}, coordinator epoch {entry.coordinator_epoch}, "
            + (
                f"transaction open from offset {entry.transaction_first_offset}"
                if entry.transaction_first_offset >= 0
                else "no open transaction"
            )
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 if a file could not be printed completely."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m barnabas.storage.dump", description=summary)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--batches", action="store_true", help="print batches without their records")
    options = parser.parse_args(arguments)
    status = 0
    for path in options.files:
        try:
            print(f"{path}:")
            for line in dump_lines(RealDisk(), path, records=not options.batches):
                print(f"  {line}")
        except BrokenPipeError:
            return status
        except NotDumpable as error:
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
        except OSError as error:
            print(f"{path}: {error.strerror}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
