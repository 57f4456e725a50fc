"""StreamsGroupDescribe (API key 89)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UINT16, Message, Struct, array, field, struct


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0", flexible="0+"):
    """Describe streams groups (KIP-1071). Version 0; flexible."""

    group_ids: list[str] = field(array(STRING), "0+", factory=list)
    include_authorized_operations: bool = field(BOOL, "0+", default=False)


class KeyValue(Struct):
    key: str = field(STRING, "0+", default="")
    value: str = field(STRING, "0+", default="")


class TopicInfo(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: int = field(INT32, "0+", default=0)
    replication_factor: int = field(INT16, "0+", default=0)
    topic_configs: list[KeyValue] = field(array(KeyValue), "0+", factory=list)


class Subtopology(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    source_topics: list[str] = field(array(STRING), "0+", factory=list)
    repartition_sink_topics: list[str] = field(array(STRING), "0+", factory=list)
    state_changelog_topics: list[TopicInfo] = field(array(TopicInfo), "0+", factory=list)
    repartition_source_topics: list[TopicInfo] = field(array(TopicInfo), "0+", factory=list)


class Topology(Struct):
    epoch: int = field(INT32, "0+", default=0)
    subtopologies: list[Subtopology] | None = field(array(Subtopology), "0+", default=None, nullable="0+")


class Endpoint(Struct):
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)


class TaskOffset(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    partition: int = field(INT32, "0+", default=0)
    offset: int = field(INT64, "0+", default=0)


class TaskIds(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class Assignment(Struct):
    active_tasks: list[TaskIds] = field(array(TaskIds), "0+", factory=list)
    standby_tasks: list[TaskIds] = field(array(TaskIds), "0+", factory=list)
    warmup_tasks: list[TaskIds] = field(array(TaskIds), "0+", factory=list)


class Member(Struct):
    member_id: str = field(STRING, "0+", default="")
    member_epoch: int = field(INT32, "0+", default=0)
    instance_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    rack_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    client_id: str = field(STRING, "0+", default="")
    client_host: str = field(STRING, "0+", default="")
    topology_epoch: int = field(INT32, "0+", default=0)
    process_id: str = field(STRING, "0+", default="")
    user_endpoint: Endpoint | None = field(struct(Endpoint), "0+", default=None, nullable="0+")
    client_tags: list[KeyValue] = field(array(KeyValue), "0+", factory=list)
    task_offsets: list[TaskOffset] = field(array(TaskOffset), "0+", factory=list)
    task_end_offsets: list[TaskOffset] = field(array(TaskOffset), "0+", factory=list)
    assignment: Assignment = field(struct(Assignment), "0+", factory=Assignment)
    target_assignment: Assignment = field(struct(Assignment), "0+", factory=Assignment)
    is_classic: bool = field(BOOL, "0+", default=False)


class DescribedGroup(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    group_id: str = field(STRING, "0+", default="")
    group_state: str = field(STRING, "0+", default="")
    group_epoch: int = field(INT32, "0+", default=0)
    assignment_epoch: int = field(INT32, "0+", default=0)
    topology: Topology | None = field(struct(Topology), "0+", default=None, nullable="0+")
    members: list[Member] = field(array(Member), "0+", factory=list)
    authorized_operations: int = field(INT32, "0+", default=-2147483648)


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0", flexible="0+"):
    """The answer to `StreamsGroupDescribeRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    groups: list[DescribedGroup] = field(array(DescribedGroup), "0+", factory=list)
