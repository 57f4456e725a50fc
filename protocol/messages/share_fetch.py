"""ShareFetch (API key 78)."""

from __future__ import annotations

from barnabas.protocol.primitives import INT32_MAX, ZERO_UUID, Records
from barnabas.protocol.schema import (
    BOOL,
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


class AcknowledgementBatch(Struct):
    first_offset: int = field(INT64, "0+", default=0)
    last_offset: int = field(INT64, "0+", default=0)
    acknowledge_types: list[int] = field(array(INT8), "0+", factory=list)


class FetchPartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    partition_max_bytes: int = field(INT32, "0", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = field(
        array(AcknowledgementBatch), "0+", factory=list
    )


class FetchTopic(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[FetchPartition] = field(array(FetchPartition), "0+", factory=list)


class ForgottenTopic(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    """Acquire records of share partitions, and acknowledge earlier ones. Version 2: acquire mode, renewal
    (KIP-932, KIP-1206, KIP-1222). Versions 1 to 2; flexible."""

    group_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    member_id: str | None = field(STRING, "0+", default="", nullable="0+")
    share_session_epoch: int = field(INT32, "0+", default=0)
    max_wait_ms: int = field(INT32, "0+", default=0)
    min_bytes: int = field(INT32, "0+", default=0)
    max_bytes: int = field(INT32, "0+", default=INT32_MAX)
    max_records: int = field(INT32, "1+", default=0)
    batch_size: int = field(INT32, "1+", default=0)
    share_acquire_mode: int = field(INT8, "2+", default=0, ignorable=True)
    is_renew_ack: bool = field(BOOL, "2+", default=False)
    topics: list[FetchTopic] = field(array(FetchTopic), "0+", factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "0+", factory=list)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)


class AcquiredRecords(Struct):
    first_offset: int = field(INT64, "0+", default=0)
    last_offset: int = field(INT64, "0+", default=0)
    delivery_count: int = field(INT16, "0+", default=0)


class PartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    acknowledge_error_code: int = field(INT16, "0+", default=0)
    acknowledge_error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    current_leader: LeaderIdAndEpoch = field(struct(LeaderIdAndEpoch), "0+", factory=LeaderIdAndEpoch)
    records: Records | None = field(RECORDS, "0+", default=None, nullable="0")
    acquired_records: list[AcquiredRecords] = field(array(AcquiredRecords), "0+", factory=list)


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionData] = field(array(PartitionData), "0+", factory=list)


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "0+", default=0)
    host: str = field(STRING, "0+", default="")
    port: int = field(INT32, "0+", default=0)
    rack: str | None = field(STRING, "0+", default=None, nullable="0+")


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    """The answer to `ShareFetchRequest`. Versions 1 to 2; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    acquisition_lock_timeout_ms: int = field(INT32, "1+", default=0)
    responses: list[ShareFetchableTopicResponse] = field(
        array(ShareFetchableTopicResponse), "0+", factory=list
    )
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "0+", factory=list)
