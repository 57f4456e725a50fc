"""Records of `__remote_log_metadata` (KIP-405)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import (
    BOOL,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
    struct,
)


class TopicIdPartitionEntry(Struct):
    name: str = field(STRING, "0+", default="")
    id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partition: int = field(INT32, "0+", default=0)


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = field(
        struct(TopicIdPartitionEntry), "0+", factory=TopicIdPartitionEntry
    )
    id: bytes = field(UUID, "0+", default=ZERO_UUID)


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = field(INT32, "0+", default=0)
    offset: int = field(INT64, "0+", default=0)


class RemoteLogSegmentMetadataRecord(Message, api_key=0, versions="0", flexible="0+"):
    """A segment is being copied, or was copied, to remote storage. Version 0; flexible."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(
        struct(RemoteLogSegmentIdEntry), "0+", factory=RemoteLogSegmentIdEntry
    )
    start_offset: int = field(INT64, "0+", default=0)
    end_offset: int = field(INT64, "0+", default=0)
    broker_id: int = field(INT32, "0+", default=0)
    max_timestamp_ms: int = field(INT64, "0+", default=0)
    event_timestamp_ms: int = field(INT64, "0+", default=0)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(
        array(SegmentLeaderEpochEntry), "0+", factory=list
    )
    segment_size_in_bytes: int = field(INT32, "0+", default=0)
    custom_metadata: bytes | None = field(BYTES, "0+", default=None, nullable="0+")
    remote_log_segment_state: int = field(INT8, "0+", default=0)
    txn_index_empty: bool = field(BOOL, "0+", default=False, tag=0)


class RemoteLogSegmentMetadataUpdateRecord(Message, api_key=1, versions="0", flexible="0+"):
    """The state of a remote segment changed. Version 0; flexible."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(
        struct(RemoteLogSegmentIdEntry), "0+", factory=RemoteLogSegmentIdEntry
    )
    broker_id: int = field(INT32, "0+", default=0)
    event_timestamp_ms: int = field(INT64, "0+", default=0)
    custom_metadata: bytes | None = field(BYTES, "0+", default=None, nullable="0+")
    remote_log_segment_state: int = field(INT8, "0+", default=0)


class RemotePartitionDeleteMetadataRecord(Message, api_key=2, versions="0", flexible="0+"):
    """The remote segments of a partition are to be deleted. Version 0; flexible."""

    topic_id_partition: TopicIdPartitionEntry = field(
        struct(TopicIdPartitionEntry), "0+", factory=TopicIdPartitionEntry
    )
    broker_id: int = field(INT32, "0+", default=0)
    event_timestamp_ms: int = field(INT64, "0+", default=0)
    remote_partition_delete_state: int = field(INT8, "0+", default=0)


class RemoteLogSegmentMetadataSnapshotRecord(Message, api_key=3, versions="0", flexible="0+"):
    """A segment in a snapshot of the remote log metadata. Version 0; flexible."""

    segment_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    start_offset: int = field(INT64, "0+", default=0)
    end_offset: int = field(INT64, "0+", default=0)
    broker_id: int = field(INT32, "0+", default=0)
    max_timestamp_ms: int = field(INT64, "0+", default=0)
    event_timestamp_ms: int = field(INT64, "0+", default=0)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(
        array(SegmentLeaderEpochEntry), "0+", factory=list
    )
    segment_size_in_bytes: int = field(INT32, "0+", default=0)
    custom_metadata: bytes | None = field(BYTES, "0+", default=None, nullable="0+")
    remote_log_segment_state: int = field(INT8, "0+", default=0)
    txn_index_empty: bool = field(BOOL, "0+", default=False, tag=0)
