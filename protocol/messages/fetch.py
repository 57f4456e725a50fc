"""Fetch (API key 1)."""

from __future__ import annotations

from barnabas.protocol.primitives import INT32_MAX, INT64_MAX, ZERO_UUID, Records
from barnabas.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
    struct,
)


class ReplicaState(Struct):
    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


class FetchPartition(Struct):
    partition: int = field(INT32, "0+", default=0)
    current_leader_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64, "0+", default=0)
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32, "0+", default=0)
    replica_directory_id: bytes = field(UUID, "17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: int = field(INT64, "18+", default=INT64_MAX, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition), "0+", factory=list)


class ForgottenTopic(Struct):
    topic: str = field(STRING, "7-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = field(array(INT32), "7+", factory=list)


class FetchRequest(Message, api_key=1, versions="0-18", flexible="12+"):
    """Read record batches: consumers, follower replicas, and the voters and observers of the metadata log.
    Version 4: isolation level; 5: log start offset; 7: sessions; 9: leader epochs; 11: rack; 12: diverging
    epochs; 13: topic ids; 15: the replica's epoch; 16: endpoints of leaders; 17: the replica's directory;
    18: the replica's high watermark (KIP-74, KIP-227, KIP-320, KIP-392, KIP-405, KIP-516, KIP-595, KIP-853,
    KIP-903, KIP-951, KIP-1166). Versions 0 to 18; flexible from 12."""

    cluster_id: str | None = field(STRING, "12+", default=None, nullable="12+", tag=0, ignorable=True)
    replica_id: int = field(INT32, "0-14", default=-1)
    replica_state: ReplicaState = field(struct(ReplicaState), "15+", factory=ReplicaState, tag=1)
    max_wait_ms: int = field(INT32, "0+", default=0)
    min_bytes: int = field(INT32, "0+", default=0)
    max_bytes: int = field(INT32, "3+", default=INT32_MAX, ignorable=True)
    isolation_level: int = field(INT8, "4+", default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0, ignorable=True)
    session_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(array(FetchTopic), "0+", factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+", factory=list)
    rack_id: str = field(STRING, "11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = field(INT64, "0+", default=-1)
    epoch: int = field(INT32, "0+", default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(INT64, "4+", default=0)
    first_offset: int = field(INT64, "4+", default=0)


class PartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    high_watermark: int = field(INT64, "0+", default=0)
    last_stable_offset: int = field(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(struct(EpochEndOffset), "12+", factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = field(struct(LeaderIdAndEpoch), "12+", factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = field(struct(SnapshotId), "12+", factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), "4+", factory=list, nullable="4+", ignorable=True
    )
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Records | None = field(RECORDS, "0+", default=None, nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData), "0+", factory=list)


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "16+", default=0)
    host: str = field(STRING, "16+", default="")
    port: int = field(INT32, "16+", default=0)
    rack: str | None = field(STRING, "16+", default=None, nullable="16+")


class FetchResponse(Message, api_key=1, versions="0-18", flexible="12+"):
    """The answer to `FetchRequest`. Versions 0 to 18; flexible from 12."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "7+", default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse), "0+", factory=list)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "16+", factory=list, tag=0)
