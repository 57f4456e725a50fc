"""Commits the progress of a stream to a consumer group, so that tools outside of Spark see its lag.

The group has no members. A query resumes from Spark's checkpoint, not from the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.coordinator_lookup import CoordinatorType
from barnabas.client.metadata import TopicPartition
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_WITH_NAMES = 9
"""The last version with topic names; from 10 on topics have ids only."""


def commit_group_offsets(cluster: BlockingCluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """PipelineError if the group rejects them, as it does while it has members."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic)).partitions.append(
            OffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset)
        )
    request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=list(topics.values()))
    try:
        response = cluster.coordinator_call(group_id, CoordinatorType.GROUP, request, _first_error, version=_WITH_NAMES)
    except KafkaError as error:
        raise _refused(group_id, error.code) from None
    code = _first_error(response)
    if code is not ErrorCode.NONE:
        raise _refused(group_id, code)


def _refused(group_id: str, code: ErrorCode) -> PipelineError:
    return PipelineError(
        f"group {group_id} rejected the offsets of the stream ({code.name}); option groupId needs a group without"
        " consumers"
    )


def _first_error(response: Any) -> ErrorCode:
    """The first error apart from those of topics that were deleted meanwhile."""
    codes = [error_code(partition.error_code) for topic in response.topics for partition in topic.partitions]
    return next(
        (code for code in codes if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        ErrorCode.NONE,
    )
