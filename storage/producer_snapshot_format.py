"""Core: the bytes of a producer snapshot file, as Kafka writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.producer_snapshot import ProducerEntry as SnapshotEntry
from barnabas.protocol.messages.producer_snapshot import ProducerSnapshot
from barnabas.protocol.records.batch import MAX_INT32, NO_SEQUENCE
from barnabas.protocol.records.crc import crc32c
from barnabas.protocol.schema import decode, encode
from barnabas.storage.producers import NO_OFFSET, ProducerEntry, SequencedBatch

_SNAPSHOT_VERSION = 1
_VERSION = struct.Struct(">h")
_CRC = struct.Struct(">I")
_CRC_POSITION = 2
_CRC_COVERS_FROM = 6


class CorruptSnapshot(Exception):
    """The bytes are no valid producer snapshot. The state can be rebuilt from the log."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """A snapshot file of version 1: version, CRC-32C of the rest, and the producers."""
    message = ProducerSnapshot(producer_entries=[_to_snapshot(entry) for entry in entries])
    data = bytearray(_VERSION.pack(_SNAPSHOT_VERSION) + encode(message, _SNAPSHOT_VERSION))
    _CRC.pack_into(data, _CRC_POSITION, crc32c(memoryview(data)[_CRC_COVERS_FROM:]))
    return bytes(data)


def _to_snapshot(entry: ProducerEntry) -> SnapshotEntry:
    last = entry.batches[-1] if entry.batches else None
    return SnapshotEntry(
        producer_id=entry.producer_id,
        epoch=entry.epoch,
        last_sequence=last.last_sequence if last else NO_SEQUENCE,
        last_offset=last.last_offset if last else NO_OFFSET,
        offset_delta=last.last_offset - last.first_offset if last else 0,
        timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_first_offset=entry.transaction_first_offset,
    )


def decode_snapshot(data: bytes) -> Sequence[ProducerEntry]:
    """The producers of a snapshot file, each with its last batch only. Raises `CorruptSnapshot`."""
    if len(data) < _CRC_COVERS_FROM:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    (version,) = _VERSION.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    (crc,) = _CRC.unpack_from(data, _CRC_POSITION)
    if crc != crc32c(memoryview(data)[_CRC_COVERS_FROM:]):
        raise CorruptSnapshot("wrong CRC")
    try:
        message = decode(ProducerSnapshot, memoryview(data)[_VERSION.size :], version)
    except MalformedMessage as error:
        raise CorruptSnapshot(str(error)) from None
    return [_from_snapshot(entry) for entry in message.producer_entries]


def is_sound_snapshot(data: bytes) -> bool:
    """True if `decode_snapshot` would accept it."""
    try:
        decode_snapshot(data)
    except CorruptSnapshot:
        return False
    return True


def _from_snapshot(stored: SnapshotEntry) -> ProducerEntry:
    entry = ProducerEntry(stored.producer_id)
    entry.epoch = stored.epoch
    entry.coordinator_epoch = stored.coordinator_epoch
    entry.last_timestamp = stored.timestamp
    entry.transaction_first_offset = stored.current_txn_first_offset
    if stored.last_offset >= 0:
        last_sequence, delta = stored.last_sequence, stored.offset_delta
        first_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else (last_sequence - delta) & MAX_INT32
        entry.batches.append(
            SequencedBatch(
                first_sequence,
                last_sequence,
                stored.last_offset - delta,
                stored.last_offset,
                stored.timestamp,
            )
        )
    return entry
