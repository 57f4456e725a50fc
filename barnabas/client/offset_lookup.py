"""Core: ListOffsets requests and responses: where a partition begins, ends, or has the first record of a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.client.metadata import Leadership, TopicPartition
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CONSUMER = -1
"""Replica id of a client."""
LATEST = -1
"""Timestamp that means the end of the log; for read_committed, the last stable offset."""
EARLIEST = -2
"""Timestamp that means the first record that still exists."""


class Isolation(IntEnum):
    """Values of isolation.level."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FoundOffset(NamedTuple):
    """Result for one partition; -1 for values that do not exist."""

    offset: int
    timestamp_ms: int
    """Timestamp of that record, if a time was looked up."""
    leader_epoch: int


def request_for(
    partitions: Mapping[TopicPartition, Leadership],
    timestamps: Mapping[TopicPartition, int],
    isolation: Isolation,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """A request for partitions that share a leader."""
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, leadership in partitions.items():
        topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic)).partitions.append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=leadership.epoch,
                timestamp=timestamps[partition],
            )
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation,
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


def answers_of(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, ErrorCode, FoundOffset]]:
    """Partition, error and offset; the offset is valid only if the error is NONE."""
    for topic in response.topics:
        for answer in topic.partitions:
            code = error_code(answer.error_code)
            found = FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)
            if code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                # Records of the oldest format have no timestamps: there is no record at or after any time.
                code, found = ErrorCode.NONE, found._replace(offset=-1, timestamp_ms=-1)
            yield TopicPartition(topic.name, answer.partition_index), code, found
