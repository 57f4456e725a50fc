"""Vote (API key 52)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UINT16, UUID, Message, Struct, array, field


class RequestPartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    replica_epoch: int = field(INT32, "0+", default=0)
    replica_id: int = field(INT32, "0+", default=0)
    replica_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: int = field(INT32, "0+", default=0)
    last_offset: int = field(INT64, "0+", default=0)
    pre_vote: bool = field(BOOL, "2+", default=False)


class RequestTopicData(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[RequestPartitionData] = field(array(RequestPartitionData), "0+", factory=list)


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    """A candidate of the metadata quorum asks for a vote. Version 1: directory ids; 2: pre-vote (KIP-595,
    KIP-853, KIP-996). Versions 0 to 2; flexible."""

    cluster_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    voter_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = field(array(RequestTopicData), "0+", factory=list)


class ResponsePartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    vote_granted: bool = field(BOOL, "0+", default=False)


class ResponseTopicData(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[ResponsePartitionData] = field(array(ResponsePartitionData), "0+", factory=list)


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+", default=0)
    host: str = field(STRING, "1+", default="")
    port: int = field(UINT16, "1+", default=0)


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    """The answer to `VoteRequest`. Versions 0 to 2; flexible."""

    error_code: int = field(INT16, "0+", default=0)
    topics: list[ResponseTopicData] = field(array(ResponseTopicData), "0+", factory=list)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", factory=list, tag=0)
