"""Core: a segment in the remote store, its states, and the changes that brokers publish (KIP-405).

A broker publishes a `RemoteSegment` before it copies, and a `SegmentUpdate` for each later state. The table of moves is
Kafka's `RemoteLogSegmentState`; besides, a record may repeat the state that the segment has: its publisher has tried
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from barnabas.protocol.primitives import uuid_to_string


class SegmentState(IntEnum):
    """The value is the one in `__remote_log_metadata`."""

    COPY_SEGMENT_STARTED = 0
    """Its objects may be there, wholly or in part; nobody reads them."""
    COPY_SEGMENT_FINISHED = 1
    """Its objects are complete."""
    DELETE_SEGMENT_STARTED = 2
    """Nobody reads it any more; its objects may be there."""
    DELETE_SEGMENT_FINISHED = 3
    """Its objects are gone, and it is forgotten."""


class PartitionDeleteState(IntEnum):
    """The value is the one in `__remote_log_metadata`."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


MOVES: dict[tuple[SegmentState, SegmentState], str] = {
    (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED): "all objects are stored",
    (SegmentState.COPY_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_STARTED): "the copy was given up",
    (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED): "it expired, or another one replaces it",
    (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED): "all objects are deleted",
}
"""(from, to): reason. No other move is legal."""


def may_move(before: SegmentState | None, after: SegmentState) -> bool:
    """`before` is None for an unknown segment."""
    if before is None:
        return after is SegmentState.COPY_SEGMENT_STARTED
    return before is after or (before, after) in MOVES


class RemotePartitionKey(NamedTuple):
    """One partition of one topic; a topic that was created again has another id."""

    topic_id: bytes
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} (topic id {uuid_to_string(self.topic_id)})"


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """Kafka's RemoteLogSegmentMetadata."""

    key: RemotePartitionKey
    segment_id: bytes
    """Sixteen bytes, chosen for each attempt to copy."""
    start_offset: int
    end_offset: int
    """Inclusive."""
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    size_bytes: int
    """Bytes of the log; indexes do not count."""
    state: SegmentState
    leader_epochs: tuple[tuple[int, int], ...]
    """(leader epoch, start offset) in ascending order, the first of them from `start_offset`. Never empty."""
    custom_metadata: bytes | None = None
    transaction_index_is_empty: bool = False

    def epoch_ranges(self) -> Iterator[tuple[int, int, int]]:
        """(leader epoch, first offset, last offset) of each epoch with records here."""
        ends = [start_offset - 1 for _, start_offset in self.leader_epochs[1:]]
        for (epoch, start_offset), end_offset in zip(self.leader_epochs, [*ends, self.end_offset], strict=True):
            if start_offset <= end_offset:
                yield epoch, start_offset, end_offset

    def end_offset_of(self, leader_epoch: int) -> int:
        """Last offset of this segment that belongs to `leader_epoch`, inclusive."""
        for epoch, start_offset in self.leader_epochs:
            if epoch > leader_epoch:
                return start_offset - 1
        return self.end_offset

    def updated(self, update: SegmentUpdate) -> RemoteSegment:
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
            state=update.state,
        )

    def __str__(self) -> str:
        offsets = f"offsets {self.start_offset} to {self.end_offset}"
        return f"segment {uuid_to_string(self.segment_id)} of {self.key}, {offsets}, {self.state.name}"


@dataclass(frozen=True, slots=True)
class SegmentUpdate:
    """Kafka's RemoteLogSegmentMetadataUpdate: the next state of a segment. It replaces custom metadata, too."""

    key: RemotePartitionKey
    segment_id: bytes
    event_timestamp_ms: int
    state: SegmentState
    broker_id: int
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """Kafka's RemotePartitionDeleteMetadata."""

    key: RemotePartitionKey
    state: PartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


MetadataRecord = RemoteSegment | SegmentUpdate | PartitionDelete
"""A record of `__remote_log_metadata`."""
