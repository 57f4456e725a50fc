"""DescribeTopicPartitions (API key 75)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, UUID, Message, Struct, array, field, struct


class TopicRequest(Struct):
    name: str = field(STRING, "0+", default="")


class Cursor(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partition_index: int = field(INT32, "0+", default=0)


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    """Describe topics page by page, with the eligible leader replicas (KIP-966). Version 0; flexible."""

    topics: list[TopicRequest] = field(array(TopicRequest), "0+", factory=list)
    response_partition_limit: int = field(INT32, "0+", default=2000)
    cursor: Cursor | None = field(struct(Cursor), "0+", default=None, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(INT16, "0+", default=0)
    partition_index: int = field(INT32, "0+", default=0)
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32), "0+", factory=list)
    isr_nodes: list[int] = field(array(INT32), "0+", factory=list)
    eligible_leader_replicas: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+")
    offline_replicas: list[int] = field(array(INT32), "0+", factory=list, ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(INT16, "0+", default=0)
    name: str | None = field(STRING, "0+", default="", nullable="0+")
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(BOOL, "0+", default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        array(DescribeTopicPartitionsResponsePartition), "0+", factory=list
    )
    topic_authorized_operations: int = field(INT32, "0+", default=-2147483648)


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    """The answer to `DescribeTopicPartitionsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        array(DescribeTopicPartitionsResponseTopic), "0+", factory=list
    )
    next_cursor: Cursor | None = field(struct(Cursor), "0+", default=None, nullable="0+")
