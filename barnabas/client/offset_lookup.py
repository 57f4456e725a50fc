"""The question where a partition begins, ends, or has the first record of a time (ListOffsets). A core: who asks it,
and how often, is others' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.client.metadata import Leadership, TopicPartition
from protocol.errors import ErrorCode, error_code
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CONSUMER = -1
"""As a replica's id: not a replica."""
LATEST = -1
"""As a timestamp: the end of the log; for readers of committed records, its last stable offset."""
EARLIEST = -2
"""As a timestamp: the first record that is still there."""


class Isolation(IntEnum):
    """isolation.level"""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FoundOffset(NamedTuple):
    """-1 wherever there is none."""

    offset: int
    timestamp_ms: int
    """Of the record there, if a time was asked for."""
    leader_epoch: int


def request_for(
    partitions: Mapping[TopicPartition, Leadership],
    timestamps: Mapping[TopicPartition, int],
    isolation: Isolation,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """About the partitions that one node leads."""
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
    """What was found means nothing unless the code is NONE."""
    for topic in response.topics:
        for answer in topic.partitions:
            code = error_code(answer.error_code)
            found = FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)
            if code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                # Records of the oldest format have no timestamps: there is nothing at or after any.
                code, found = ErrorCode.NONE, found._replace(offset=-1, timestamp_ms=-1)
            yield TopicPartition(topic.name, answer.partition_index), code, found
