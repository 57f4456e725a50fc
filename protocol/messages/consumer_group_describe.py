"""ConsumerGroupDescribe (API key 69)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Message, Struct, array, field, struct


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    """Describe consumer groups: epochs, current and target assignment. Version 1: type of members (KIP-848,
    KIP-1099). Versions 0 to 1; flexible."""

    group_ids: list[str] = field(array(STRING), "0+", factory=list)
    include_authorized_operations: bool = field(BOOL, "0+", default=False)


class TopicPartitions(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions), "0+", factory=list)


class Member(Struct):
    member_id: str = field(STRING, "0+", default="")
    instance_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    rack_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    member_epoch: int = field(INT32, "0+", default=0)
    client_id: str = field(STRING, "0+", default="")
    client_host: str = field(STRING, "0+", default="")
    subscribed_topic_names: list[str] = field(array(STRING), "0+", factory=list)
    subscribed_topic_regex: str | None = field(STRING, "0+", default=None, nullable="0+")
    assignment: Assignment = field(struct(Assignment), "0+", factory=Assignment)
    target_assignment: Assignment = field(struct(Assignment), "0+", factory=Assignment)
    member_type: int = field(INT8, "1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    group_id: str = field(STRING, "0+", default="")
    group_state: str = field(STRING, "0+", default="")
    group_epoch: int = field(INT32, "0+", default=0)
    assignment_epoch: int = field(INT32, "0+", default=0)
    assignor_name: str = field(STRING, "0+", default="")
    members: list[Member] = field(array(Member), "0+", factory=list)
    authorized_operations: int = field(INT32, "0+", default=-2147483648)


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    """The answer to `ConsumerGroupDescribeRequest`. Versions 0 to 1; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    groups: list[DescribedGroup] = field(array(DescribedGroup), "0+", factory=list)
