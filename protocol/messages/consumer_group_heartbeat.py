"""ConsumerGroupHeartbeat (API key 68)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field, struct


class TopicPartitions(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    """A member of a consumer group joins, is alive, reports its partitions, or leaves (epoch -1). Version 1:
    subscription by pattern (KIP-848). Versions 0 to 1; flexible."""

    group_id: str = field(STRING, "0+", default="")
    member_id: str = field(STRING, "0+", default="")
    member_epoch: int = field(INT32, "0+", default=0)
    instance_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    rack_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING), "0+", default=None, nullable="0+")
    subscribed_topic_regex: str | None = field(STRING, "1+", default=None, nullable="1+")
    server_assignor: str | None = field(STRING, "0+", default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = field(
        array(TopicPartitions), "0+", default=None, nullable="0+"
    )


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions), "0+", factory=list)


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    """The answer to `ConsumerGroupHeartbeatRequest`. Versions 0 to 1; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    member_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    member_epoch: int = field(INT32, "0+", default=0)
    heartbeat_interval_ms: int = field(INT32, "0+", default=0)
    assignment: Assignment | None = field(struct(Assignment), "0+", default=None, nullable="0+")
