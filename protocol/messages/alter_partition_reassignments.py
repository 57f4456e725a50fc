"""AlterPartitionReassignments (API key 45)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, Message, Struct, array, field


class ReassignablePartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    replicas: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+")


class ReassignableTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition), "0+", factory=list)


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    """Start or cancel moving replicas. Version 1: may change the replication factor (KIP-455, KIP-860).
    Versions 0 to 1; flexible."""

    timeout_ms: int = field(INT32, "0+", default=60000)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic), "0+", factory=list)


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[ReassignablePartitionResponse] = field(
        array(ReassignablePartitionResponse), "0+", factory=list
    )


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    """The answer to `AlterPartitionReassignmentsRequest`. Versions 0 to 1; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse), "0+", factory=list)
