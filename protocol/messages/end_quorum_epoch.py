"""EndQuorumEpoch (API key 54)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, STRING, UINT16, UUID, Message, Struct, array, field


class ReplicaInfo(Struct):
    candidate_id: int = field(INT32, "1+", default=0)
    candidate_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID)


class RequestPartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    preferred_successors: list[int] = field(array(INT32), "0", factory=list, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(array(ReplicaInfo), "1+", factory=list, ignorable=True)


class RequestTopicData(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[RequestPartitionData] = field(array(RequestPartitionData), "0+", factory=list)


class LeaderEndpoint(Struct):
    name: str = field(STRING, "1+", default="")
    host: str = field(STRING, "1+", default="")
    port: int = field(UINT16, "1+", default=0)


class EndQuorumEpochRequest(Message, api_key=54, versions="0-1", flexible="1+"):
    """A leader of the metadata quorum resigns, and names its successors in order of preference (KIP-595,
    KIP-853). Versions 0 to 1; flexible from 1."""

    cluster_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    topics: list[RequestTopicData] = field(array(RequestTopicData), "0+", factory=list)
    leader_endpoints: list[LeaderEndpoint] = field(array(LeaderEndpoint), "1+", factory=list, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)


class ResponseTopicData(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[ResponsePartitionData] = field(array(ResponsePartitionData), "0+", factory=list)


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+", default=0)
    host: str = field(STRING, "1+", default="")
    port: int = field(UINT16, "1+", default=0)


class EndQuorumEpochResponse(Message, api_key=54, versions="0-1", flexible="1+"):
    """The answer to `EndQuorumEpochRequest`. Versions 0 to 1; flexible from 1."""

    error_code: int = field(INT16, "0+", default=0)
    topics: list[ResponseTopicData] = field(array(ResponseTopicData), "0+", factory=list)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", factory=list, tag=0)
