"""Control batches: records of brokers and controllers between those of applications, which never see them.

Keys are (int16 version 0, int16 type). Transaction markers (KIP-98) fill a batch of one record; the control
records of the raft log (KIP-595, 630, 853) may share a batch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, CorruptBatch, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.protocol.schema import decode, encode

RaftControlBody = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord


class ControlType(IntEnum):
    """The type of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    VOTERS = 6


class EndTxn(NamedTuple):
    """A transaction marker."""

    committed: bool
    coordinator_epoch: int


_KEY = struct.Struct(">hh")
_END_TXN = struct.Struct(">hi")
_USUAL_MARKER = struct.Struct(">5shhBhiB")
"""The one record of a batch that `build_end_txn_batch` made, as others do, too: its sizes are always the same."""
_USUAL_MARKER_BYTES = BATCH_HEADER_BYTES + _USUAL_MARKER.size
_USUAL_START, _USUAL_VALUE_SIZE = b"\x20\0\0\0\x08", 0x0C
_BODY_VERSION = struct.Struct(">h")

_MARKERS = (int(ControlType.ABORT), int(ControlType.COMMIT))

_RAFT_BODIES: dict[ControlType, type[RaftControlBody]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.VOTERS: VotersRecord,
}
_RAFT_TYPES = {body: control_type for control_type, body in _RAFT_BODIES.items()}


def control_type(record: Record) -> ControlType | None:
    """The type of a control record; None for an unknown one of a newer version, which readers skip.

    `CorruptBatch` if the key is not that of a control record. Later key versions are read as version 0.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch(f"the control record at offset {record.offset} has no key of 4 bytes")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptBatch(f"the control record at offset {record.offset} has key version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def build_end_txn_batch(
    marker: EndTxn, producer_id: int, producer_epoch: int, timestamp: int, leader_epoch: int = -1
) -> bytes:
    """The batch that ends a producer's transaction on one partition; its offset is assigned at the append."""
    control = ControlType.COMMIT if marker.committed else ControlType.ABORT
    record = Record(0, timestamp, _KEY.pack(0, control), _END_TXN.pack(0, marker.coordinator_epoch))
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )


def read_end_txn(batch: bytes | bytearray | memoryview, position: int = 0) -> EndTxn | None:
    """The marker in a control batch; None if it holds none (another kind, or compacted away)."""
    header = read_header(batch, position)
    if header.size_bytes == _USUAL_MARKER_BYTES <= len(batch) - position and header.magic == 2:
        start, key_version, kind, value_size, version, coordinator_epoch, headers = _USUAL_MARKER.unpack_from(
            batch, position + BATCH_HEADER_BYTES
        )
        is_usual = start == _USUAL_START and value_size == _USUAL_VALUE_SIZE and not headers
        is_plain = header.records_count == 1 and not header.compression
        if is_usual and is_plain and key_version >= 0 and version >= 0 and kind in _MARKERS:
            return EndTxn(kind == ControlType.COMMIT, coordinator_epoch)
    records = decode_records(batch, position)
    if not records:
        return None
    record = records[0]
    if control_type(record) not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN.size:
        raise CorruptBatch(f"the transaction marker at offset {record.offset} has no body of 6 bytes")
    version, coordinator_epoch = _END_TXN.unpack_from(record.value)
    if version < 0:
        raise CorruptBatch(f"the transaction marker at offset {record.offset} has version {version}")
    return EndTxn(control_type(record) is ControlType.COMMIT, coordinator_epoch)


def build_raft_control_batch(
    bodies: Sequence[RaftControlBody], base_offset: int, leader_epoch: int, timestamp: int
) -> bytes:
    """One control batch of the raft log. Each body is written in the version that it names itself."""
    records = [
        Record(0, timestamp, _KEY.pack(0, _RAFT_TYPES[type(body)]), encode(body, body.version)) for body in bodies
    ]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def read_raft_control_record(record: Record) -> RaftControlBody | None:
    """The body of one record of a raft control batch; None for a kind that is unknown or not raft's."""
    kind = control_type(record)
    if kind is None or kind not in _RAFT_BODIES:
        return None
    body_type = _RAFT_BODIES[kind]
    value = record.value or b""
    try:
        (version,) = _BODY_VERSION.unpack_from(value)
        return decode(body_type, value, min(version, body_type.VERSIONS.highest))
    except (struct.error, MalformedMessage) as error:
        raise CorruptBatch(f"the control record at offset {record.offset}: {error}") from None
