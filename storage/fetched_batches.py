"""Core: validation of fetched batches before a follower appends them: a leader may be wrong, or hostile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    MARKER_BITS,
    OFFSET_AND_SIZE_BYTES,
    BatchHeader,
    CorruptBatch,
    crc_is_valid,
    iterate_batches,
)
from barnabas.protocol.records.control import read_end_txn
from barnabas.storage.segment import AppendedBatch

MAX_OFFSET_DELTA = 0x7FFF_FFFF
"""Maximum distance of offsets within one append: the indexes store relative offsets in 31 bits."""

Buffer = bytes | bytearray | memoryview

_new: Any = tuple.__new__  # skips the Python-level constructor of named tuples


class UnexpectedAppendOffset(KafkaError):
    """A fetched batch does not continue this replica's log."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class EpochsMissing(Exception):
    """There is a gap between this replica's log and a fetched batch of a later epoch, in which other epochs may have
    begun.
    """


ANY_EPOCH = (1 << 31) - 1
"""No leader has a higher epoch."""


def batches_up_to(buffer: Buffer, leader_epoch: int) -> list[tuple[int, BatchHeader]]:
    """(position, header) of each batch that a leader of that epoch can have sent; an incomplete last batch is left out.

    Fetch responses are read from files while they are sent, which may take long. A leader that was deposed meanwhile,
    and truncated its log as a follower, may send batches of the next leader at their end, behind batches that no longer
    exist. Taken together these would never be detected, because the last epoch is that of the next leader
    (KAFKA-18723).
    """
    batches = []
    for position, header in iterate_batches(buffer):
        if header.partition_leader_epoch > leader_epoch:
            break
        batches.append((position, header))
    return batches


def verify_fetched(
    buffer: Buffer, batches: Sequence[tuple[int, BatchHeader]], next_offset: int, epoch: int, log: object
) -> list[AppendedBatch]:
    """Check that all batches continue a log that ends at `next_offset` in `epoch`; returns them in the form that a
    segment takes.

    Raises `CorruptBatch` if a batch is damaged or the epochs decrease, `UnexpectedAppendOffset` if the offsets do;
    `log` is the name in their messages.
    """
    appended: list[AppendedBatch] = []
    for position, header in batches:
        last_offset = header.base_offset + header.last_offset_delta
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise UnexpectedAppendOffset(
                f"{log}: fetched offsets {header.base_offset} to {last_offset}, expected {next_offset}"
            )
        if not crc_is_valid(buffer, position, header):
            raise CorruptBatch(f"{log}: wrong CRC in the fetched batch at offset {header.base_offset}")
        if 0 <= header.partition_leader_epoch < epoch:
            raise CorruptBatch(
                f"{log}: epoch {header.partition_leader_epoch} of the fetched batch at offset "
                f"{header.base_offset} is older than {epoch}"
            )
        if header.attributes & MARKER_BITS == MARKER_BITS:
            # Raises if the marker is malformed; after the append it would be too late.
            read_end_txn(buffer, position)
        epoch = max(epoch, header.partition_leader_epoch)
        next_offset = last_offset + 1
        size_bytes = header.batch_length + OFFSET_AND_SIZE_BYTES
        appended.append(_new(AppendedBatch, (position, size_bytes, last_offset, header.max_timestamp)))
    return appended


def epoch_changes_behind_gap(batches: Sequence[tuple[int, BatchHeader]], next_offset: int, epoch: int) -> bool:
    """True if a batch of a later epoch is preceded by a gap, in a log that ends at `next_offset` in `epoch`."""
    for _, header in batches:
        if header.partition_leader_epoch > epoch:
            if header.base_offset > next_offset:
                return True
            epoch = header.partition_leader_epoch
        next_offset = header.base_offset + header.last_offset_delta + 1
    return False


def portions(appended: list[AppendedBatch], first_offset: int, limit_bytes: int) -> list[tuple[int, int]]:
    """Index ranges (first, end) of batches for one segment each: a single one, unless they do not fit."""
    found: list[tuple[int, int]] = []
    first, size = 0, 0
    for place, batch in enumerate(appended):
        too_far = batch.last_offset - first_offset > MAX_OFFSET_DELTA
        if place > first and (size + batch.size_bytes > limit_bytes or too_far):
            found.append((first, place))
            first, size, first_offset = place, 0, appended[place - 1].last_offset + 1
        size += batch.size_bytes
    found.append((first, len(appended)))
    return found
