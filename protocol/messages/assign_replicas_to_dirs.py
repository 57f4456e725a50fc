"""AssignReplicasToDirs (API key 73)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, INT64, UUID, Message, Struct, array, field


class RequestPartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)


class RequestTopicData(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[RequestPartitionData] = field(array(RequestPartitionData), "0+", factory=list)


class RequestDirectoryData(Struct):
    id: bytes = field(UUID, "0+", default=ZERO_UUID)
    topics: list[RequestTopicData] = field(array(RequestTopicData), "0+", factory=list)


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    """A broker reports to the controller the log directory of each replica (KIP-858). Version 0; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    broker_epoch: int = field(INT64, "0+", default=-1)
    directories: list[RequestDirectoryData] = field(array(RequestDirectoryData), "0+", factory=list)


class ResponsePartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)


class ResponseTopicData(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[ResponsePartitionData] = field(array(ResponsePartitionData), "0+", factory=list)


class ResponseDirectoryData(Struct):
    id: bytes = field(UUID, "0+", default=ZERO_UUID)
    topics: list[ResponseTopicData] = field(array(ResponseTopicData), "0+", factory=list)


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    """The answer to `AssignReplicasToDirsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    directories: list[ResponseDirectoryData] = field(array(ResponseDirectoryData), "0+", factory=list)
