"""ShareGroupDescribe (API key 77)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, UUID, Message, Struct, array, field, struct


class ShareGroupDescribeRequest(Message, api_key=77, versions="1", flexible="0+"):
    """Describe share groups (KIP-932). Version 1; flexible."""

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
    rack_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    member_epoch: int = field(INT32, "0+", default=0)
    client_id: str = field(STRING, "0+", default="")
    client_host: str = field(STRING, "0+", default="")
    subscribed_topic_names: list[str] = field(array(STRING), "0+", factory=list)
    assignment: Assignment = field(struct(Assignment), "0+", factory=Assignment)


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


class ShareGroupDescribeResponse(Message, api_key=77, versions="1", flexible="0+"):
    """The answer to `ShareGroupDescribeRequest`. Version 1; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    groups: list[DescribedGroup] = field(array(DescribedGroup), "0+", factory=list)
