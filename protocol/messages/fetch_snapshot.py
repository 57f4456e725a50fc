"""FetchSnapshot (API key 59)."""

from __future__ import annotations

from barnabas.protocol.primitives import INT32_MAX, ZERO_UUID, Records
from barnabas.protocol.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
    struct,
)


class SnapshotId(Struct):
    end_offset: int = field(INT64, "0+", default=0)
    epoch: int = field(INT32, "0+", default=0)


class RequestPartitionSnapshot(Struct):
    partition: int = field(INT32, "0+", default=0)
    current_leader_epoch: int = field(INT32, "0+", default=0)
    snapshot_id: SnapshotId = field(struct(SnapshotId), "0+", factory=SnapshotId)
    position: int = field(INT64, "0+", default=0)
    replica_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID, tag=0, ignorable=True)


class RequestTopicSnapshot(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[RequestPartitionSnapshot] = field(array(RequestPartitionSnapshot), "0+", factory=list)


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    """Fetch a piece of a snapshot of the metadata log (KIP-630). Versions 0 to 1; flexible."""

    cluster_id: str | None = field(STRING, "0+", default=None, nullable="0+", tag=0)
    replica_id: int = field(INT32, "0+", default=-1)
    max_bytes: int = field(INT32, "0+", default=INT32_MAX)
    topics: list[RequestTopicSnapshot] = field(array(RequestTopicSnapshot), "0+", factory=list)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)


class ResponsePartitionSnapshot(Struct):
    index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    snapshot_id: SnapshotId = field(struct(SnapshotId), "0+", factory=SnapshotId)
    current_leader: LeaderIdAndEpoch = field(struct(LeaderIdAndEpoch), "0+", factory=LeaderIdAndEpoch, tag=0)
    size: int = field(INT64, "0+", default=0)
    position: int = field(INT64, "0+", default=0)
    unaligned_records: Records = field(RECORDS, "0+", default=b"")


class ResponseTopicSnapshot(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[ResponsePartitionSnapshot] = field(array(ResponsePartitionSnapshot), "0+", factory=list)


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+", default=0)
    host: str = field(STRING, "1+", default="")
    port: int = field(UINT16, "1+", default=0)


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    """The answer to `FetchSnapshotRequest`. Versions 0 to 1; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    topics: list[ResponseTopicSnapshot] = field(array(ResponseTopicSnapshot), "0+", factory=list)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", factory=list, tag=0)
