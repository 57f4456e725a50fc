"""Builds record batches of format v2: the bytes that disk, replicas and consumers will see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

from barnabas.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    OFFSET_AND_SIZE_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from barnabas.protocol.records.crc import crc32c
from barnabas.protocol.records.layout import Fields, lay_out, record_size_bytes

__all__ = ["BatchOptions", "build_batch", "build_empty_batch", "record_size_bytes"]


class BatchOptions(TypedDict, total=False):
    """The fields of a batch besides its records."""

    base_offset: int
    """0 unless given, as producers send it."""
    keep_offsets: bool
    """Take each record's own `offset`, as compaction must; else they count up one by one."""
    last_offset: int
    """The last offset of the batch, if its last records were removed (compaction keeps the range)."""
    compression: int
    compression_level: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    transactional: bool
    control: bool
    log_append_time: int | None
    """Milliseconds: every record gets this timestamp, and the batch is marked as stamped by the broker."""
    delete_horizon_ms: int | None
    """KIP-534; takes the place of the base timestamp."""


def build_batch(records: Sequence[Fields], **options: Unpack[BatchOptions]) -> bytes:
    """One batch with `records`; without any, an empty one (give it `last_offset`).

    ValueError or struct.error if an offset, a length or a timestamp does not fit: a mistake of the caller.
    """
    base_offset = options.get("base_offset", 0)
    compression = options.get("compression", 0)
    log_append_time = options.get("log_append_time")
    delete_horizon_ms = options.get("delete_horizon_ms")
    attributes = compression
    if options.get("transactional"):
        attributes |= TRANSACTIONAL_BIT
    if options.get("control"):
        attributes |= CONTROL_BIT
    base_timestamp = records[0][1] if records else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    max_timestamp = NO_TIMESTAMP
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time
        if delete_horizon_ms is None:
            base_timestamp = log_append_time
    elif records:
        max_timestamp = max([record[1] for record in records])

    first_offset = base_offset if options.get("keep_offsets") else None
    payload, last_offset_delta = lay_out(records, base_timestamp, first_offset, log_append_time)
    last_offset = options.get("last_offset")
    if last_offset is not None:
        if last_offset < base_offset + last_offset_delta:
            raise ValueError(f"records reach beyond the last offset {last_offset}")
        last_offset_delta = last_offset - base_offset
    if compression:
        from barnabas.protocol.records.compression import compress

        payload = compress(compression, payload, options.get("compression_level"))
    head = HEADER_STRUCT.pack(
        base_offset,
        BATCH_HEADER_BYTES - OFFSET_AND_SIZE_BYTES + len(payload),
        options.get("leader_epoch", NO_LEADER_EPOCH),
        2,
        0,
        attributes,
        max(last_offset_delta, 0),
        base_timestamp,
        max_timestamp,
        options.get("producer_id", NO_PRODUCER_ID),
        options.get("producer_epoch", NO_PRODUCER_EPOCH),
        options.get("base_sequence", NO_SEQUENCE),
        len(records),
    )
    crc = crc32c(payload, crc32c(head[ATTRIBUTES_POSITION:]))
    return b"".join((head[:CRC_POSITION], crc.to_bytes(4, "big"), head[ATTRIBUTES_POSITION:], payload))


def build_empty_batch(header: BatchHeader) -> bytes:
    """The batch that compaction leaves when all records were removed: its offsets, its producer, its time."""
    head = HEADER_STRUCT.pack(
        header.base_offset,
        BATCH_HEADER_BYTES - OFFSET_AND_SIZE_BYTES,
        header.partition_leader_epoch,
        2,
        0,
        header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
        header.last_offset_delta,
        NO_TIMESTAMP,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )
    crc = crc32c(head[ATTRIBUTES_POSITION:])
    return b"".join((head[:CRC_POSITION], crc.to_bytes(4, "big"), head[ATTRIBUTES_POSITION:]))
