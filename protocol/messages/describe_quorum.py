"""DescribeQuorum (API key 55)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, INT64, STRING, UINT16, UUID, Message, Struct, array, field


class RequestPartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)


class RequestTopicData(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[RequestPartitionData] = field(array(RequestPartitionData), "0+", factory=list)


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    """Describe the metadata quorum: leader, epoch, high watermark, voters and observers with their log
    ends. Version 1: times; 2: directory ids and endpoints (KIP-595, KIP-836, KIP-853). Versions 0 to 2;
    flexible."""

    topics: list[RequestTopicData] = field(array(RequestTopicData), "0+", factory=list)


class ReplicaState(Struct):
    replica_id: int = field(INT32, "0+", default=0)
    replica_directory_id: bytes = field(UUID, "2+", default=ZERO_UUID)
    log_end_offset: int = field(INT64, "0+", default=0)
    last_fetch_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "2+", default="", nullable="2+", ignorable=True)
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    high_watermark: int = field(INT64, "0+", default=0)
    current_voters: list[ReplicaState] = field(array(ReplicaState), "0+", factory=list)
    observers: list[ReplicaState] = field(array(ReplicaState), "0+", factory=list)


class ResponseTopicData(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[ResponsePartitionData] = field(array(ResponsePartitionData), "0+", factory=list)


class Listener(Struct):
    name: str = field(STRING, "2+", default="")
    host: str = field(STRING, "2+", default="")
    port: int = field(UINT16, "2+", default=0)


class Node(Struct):
    node_id: int = field(INT32, "2+", default=0)
    listeners: list[Listener] = field(array(Listener), "2+", factory=list)


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    """The answer to `DescribeQuorumRequest`. Versions 0 to 2; flexible."""

    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "2+", default="", nullable="2+", ignorable=True)
    topics: list[ResponseTopicData] = field(array(ResponseTopicData), "0+", factory=list)
    nodes: list[Node] = field(array(Node), "2+", factory=list)
