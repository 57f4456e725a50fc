"""StreamsGroupHeartbeat (API key 88)."""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    Message,
    Struct,
    array,
    field,
    struct,
)


class KeyValue(Struct):
    key: str = field(STRING, "0+", default="")
    value: str = field(STRING, "0+", default="")


class TopicInfo(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: int = field(INT32, "0+", default=0)
    replication_factor: int = field(INT16, "0+", default=0)
    topic_configs: list[KeyValue] = field(array(KeyValue), "0+", factory=list)


class CopartitionGroup(Struct):
    source_topics: list[int] = field(array(INT16), "0+", factory=list)
    source_topic_regex: list[int] = field(array(INT16), "0+", factory=list)
    repartition_source_topics: list[int] = field(array(INT16), "0+", factory=list)


class Subtopology(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    source_topics: list[str] = field(array(STRING), "0+", factory=list)
    source_topic_regex: list[str] = field(array(STRING), "0+", factory=list)
    state_changelog_topics: list[TopicInfo] = field(array(TopicInfo), "0+", factory=list)
    repartition_sink_topics: list[str] = field(array(STRING), "0+", factory=list)
    repartition_source_topics: list[TopicInfo] = field(array(TopicInfo), "0+", factory=list)
    copartition_groups: list[CopartitionGroup] = field(array(CopartitionGroup), "0+", factory=list)


class Topology(Struct):
    epoch: int = field(INT32, "0+", default=0)
    subtopologies: list[Subtopology] = field(array(Subtopology), "0+", factory=list)


class TaskIds(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class Endpoint(Struct):
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)


class TaskOffset(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    partition: int = field(INT32, "0+", default=0)
    offset: int = field(INT64, "0+", default=0)


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0", flexible="0+"):
    """A member of a streams group joins, is alive, reports its tasks and its topology, or leaves (KIP-1071).
    Version 0; flexible."""

    group_id: str = field(STRING, "0+", default="")
    member_id: str = field(STRING, "0+", default="")
    member_epoch: int = field(INT32, "0+", default=0)
    endpoint_information_epoch: int = field(INT32, "0+", default=0)
    instance_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    rack_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    topology: Topology | None = field(struct(Topology), "0+", default=None, nullable="0+")
    active_tasks: list[TaskIds] | None = field(array(TaskIds), "0+", default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = field(array(TaskIds), "0+", default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = field(array(TaskIds), "0+", default=None, nullable="0+")
    process_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    user_endpoint: Endpoint | None = field(struct(Endpoint), "0+", default=None, nullable="0+")
    client_tags: list[KeyValue] | None = field(array(KeyValue), "0+", default=None, nullable="0+")
    task_offsets: list[TaskOffset] | None = field(array(TaskOffset), "0+", default=None, nullable="0+")
    task_end_offsets: list[TaskOffset] | None = field(array(TaskOffset), "0+", default=None, nullable="0+")
    shutdown_application: bool = field(BOOL, "0+", default=False)


class Status(Struct):
    status_code: int = field(INT8, "0+", default=0)
    status_detail: str = field(STRING, "0+", default="")


class TopicPartition(Struct):
    topic: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = field(struct(Endpoint), "0+", factory=Endpoint)
    active_partitions: list[TopicPartition] = field(array(TopicPartition), "0+", factory=list)
    standby_partitions: list[TopicPartition] = field(array(TopicPartition), "0+", factory=list)


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0", flexible="0+"):
    """The answer to `StreamsGroupHeartbeatRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    member_id: str = field(STRING, "0+", default="")
    member_epoch: int = field(INT32, "0+", default=0)
    heartbeat_interval_ms: int = field(INT32, "0+", default=0)
    acceptable_recovery_lag: int = field(INT32, "0+", default=0)
    task_offset_interval_ms: int = field(INT32, "0+", default=0)
    status: list[Status] | None = field(array(Status), "0+", factory=list, nullable="0+")
    active_tasks: list[TaskIds] | None = field(array(TaskIds), "0+", default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = field(array(TaskIds), "0+", default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = field(array(TaskIds), "0+", default=None, nullable="0+")
    endpoint_information_epoch: int = field(INT32, "0+", default=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        array(EndpointToPartitions), "0+", default=None, nullable="0+"
    )
