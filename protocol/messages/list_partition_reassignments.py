"""ListPartitionReassignments (API key 46)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(STRING, "0+", default="")
    partition_indexes: list[int] = field(array(INT32), "0+", factory=list)


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    """List the replicas that are being moved (KIP-455). Version 0; flexible."""

    timeout_ms: int = field(INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), "0+", default=None, nullable="0+"
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    replicas: list[int] = field(array(INT32), "0+", factory=list)
    adding_replicas: list[int] = field(array(INT32), "0+", factory=list)
    removing_replicas: list[int] = field(array(INT32), "0+", factory=list)


class OngoingTopicReassignment(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[OngoingPartitionReassignment] = field(
        array(OngoingPartitionReassignment), "0+", factory=list
    )


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    """The answer to `ListPartitionReassignmentsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment), "0+", factory=list)
