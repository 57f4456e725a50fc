"""Reads from the log of a partition: what a reader asks for, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
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
