"""Core: size checks of produced batches, and assignment of offsets, epoch and time in their headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    OFFSET_AND_SIZE_BYTES,
    BatchHeader,
    set_base_offset_and_epoch,
    set_log_append_time,
)
from barnabas.settings.topic import TopicConfig
from barnabas.storage.segment import AppendedBatch

_new: Any = tuple.__new__  # skips the Python-level constructor of named tuples


def size_in_bytes(
    batches: Sequence[tuple[int, BatchHeader]], config: TopicConfig, log: object, *, limited: bool = True
) -> int:
    """Total size. Raises KafkaError: MESSAGE_TOO_LARGE if `limited`, RECORD_LIST_TOO_LARGE; `log` is the name in their
    messages."""
    total = 0
    for _, header in batches:
        size = header.batch_length + OFFSET_AND_SIZE_BYTES
        if limited and size > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{log}: a batch must have at most {config.max_message_bytes} bytes (max.message.bytes); got {size}",
            )
        total += size
    if total > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{log}: an append must have at most {config.segment_bytes} bytes (segment.bytes); got {total}",
        )
    return total


def number(
    buffer: bytearray | memoryview,
    batches: Sequence[tuple[int, BatchHeader]],
    first_offset: int,
    leader_epoch: int,
    append_time: int,
) -> list[AppendedBatch]:
    """Assign offsets from `first_offset` on to batches that are contiguous in `buffer`; returns them in the form that a
    segment takes.

    Changes their headers: offset, epoch and, unless it is `NO_TIMESTAMP`, `append_time` in milliseconds since the
    epoch.
    """
    offset = first_offset
    start = batches[0][0]
    appended: list[AppendedBatch] = []
    for position, header in batches:
        set_base_offset_and_epoch(buffer, position, offset, leader_epoch)
        if append_time >= 0:
            set_log_append_time(buffer, position, append_time)
        last_offset = offset + header.last_offset_delta
        timestamp = append_time if append_time >= 0 else header.max_timestamp
        size = header.batch_length + OFFSET_AND_SIZE_BYTES
        appended.append(_new(AppendedBatch, (position - start, size, last_offset, timestamp)))
        offset = last_offset + 1
    return appended
