"""Reads from the log of a partition: what a reader asks for, and what it gets.

The caller has checked that the reader may read here. Knows neither replicas nor clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.segment_list import LogSlice
from barnabas.storage.transaction_index import AbortedTransaction


class OffsetIsRemote(KafkaError):
    """The offset is in the log, but no longer on this broker's disk: a remote segment has it (KIP-405)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, message)


class FetchKind(Enum):
    """The offset up to which a reader may read."""

    READ_UNCOMMITTED = 0
    """The high watermark."""
    READ_COMMITTED = 1
    """The last stable offset."""
    REPLICA = 2
    """The log end offset."""


class ReadRequest(NamedTuple):
    """A read from the log, with the epochs that the reader knows."""

    kind: FetchKind
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    """-1 if not given, as the next one."""
    last_fetched_epoch: int = -1
    leader_only: bool = True
    """False for consumers that may read from a follower (KIP-392)."""
    at_least_one_batch: bool = True
    """True if to return the first batch even if it is larger than `max_bytes`."""


class ReadResult(NamedTuple):
    """The records, and the offsets as of now."""

    records: LogSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log diverges from this one; then there are no records (KIP-595)."""
    aborted: Sequence[AbortedTransaction] = ()
    """Aborted transactions in `records`, for READ_COMMITTED."""


def divergence(log: PartitionLog, request: ReadRequest) -> tuple[int, int] | None:
    """(epoch, end offset) where the reader's log diverges from `log`, if it does. Raises `OffsetOutOfRange` if that is
    unknown, because the log has nothing of the epoch or of the offset."""
    asked = request.last_fetched_epoch
    if asked < 0:
        return None
    if asked == log.epochs.latest_epoch and log.log_start_offset <= request.offset <= log.log_end_offset:
        return None
    epoch, end_offset = log.end_offset_for_epoch(asked)
    if epoch < 0 or request.offset < log.log_start_offset:
        raise OffsetOutOfRange(f"{log}: offset {request.offset} after epoch {asked}")
    return (epoch, end_offset) if epoch < asked or end_offset < request.offset else None


def readable_to(log: PartitionLog, kind: FetchKind) -> int:
    """The offset up to which such a reader may read."""
    if kind is FetchKind.REPLICA:
        return log.log_end_offset
    return log.last_stable_offset if kind is FetchKind.READ_COMMITTED else log.high_watermark


def read_log(log: PartitionLog, request: ReadRequest) -> ReadResult:
    """Raises as `PartitionLog.read`, and `OffsetIsRemote`."""
    try:
        records = log.read(
            request.offset, request.max_bytes, readable_to(log, request.kind), request.at_least_one_batch
        )
    except OffsetOutOfRange:
        if log.log_start_offset <= request.offset < log.local_log_start_offset:
            raise OffsetIsRemote(f"{log}: offset {request.offset} is only remote") from None
        raise
    result = offsets_of(log, records)
    if request.kind is FetchKind.READ_COMMITTED and records is not None:
        aborted = log.aborted_transactions(request.offset, records.upper_offset)
        return result._replace(aborted=aborted) if aborted else result
    return result


def offsets_of(
    log: PartitionLog, records: LogSlice | None = None, diverging_epoch: tuple[int, int] | None = None
) -> ReadResult:
    """These records, with the offsets of the log as of now."""
    return ReadResult(
        records,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        log.log_end_offset,
        diverging_epoch,
    )
