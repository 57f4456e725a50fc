"""ShareAcknowledge (API key 79)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import (
    BOOL,
    INT8,
    INT16,
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


class AcknowledgementBatch(Struct):
    first_offset: int = field(INT64, "0+", default=0)
    last_offset: int = field(INT64, "0+", default=0)
    acknowledge_types: list[int] = field(array(INT8), "0+", factory=list)


class AcknowledgePartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = field(
        array(AcknowledgementBatch), "0+", factory=list
    )


class AcknowledgeTopic(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[AcknowledgePartition] = field(array(AcknowledgePartition), "0+", factory=list)


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="0+"):
    """Acknowledge records of share partitions: gap 0, accept 1, release 2, reject 3, renew 4 (version 2)
    (KIP-932, KIP-1222). Versions 1 to 2; flexible."""

    group_id: str | None = field(STRING, "0+", default=None, nullable="0+")
    member_id: str | None = field(STRING, "0+", default="", nullable="0+")
    share_session_epoch: int = field(INT32, "0+", default=0)
    is_renew_ack: bool = field(BOOL, "2+", default=False)
    topics: list[AcknowledgeTopic] = field(array(AcknowledgeTopic), "0+", factory=list)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)


class PartitionData(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    current_leader: LeaderIdAndEpoch = field(struct(LeaderIdAndEpoch), "0+", factory=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionData] = field(array(PartitionData), "0+", factory=list)


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "0+", default=0)
    host: str = field(STRING, "0+", default="")
    port: int = field(INT32, "0+", default=0)
    rack: str | None = field(STRING, "0+", default=None, nullable="0+")


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    """The answer to `ShareAcknowledgeRequest`. Versions 1 to 2; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    acquisition_lock_timeout_ms: int = field(INT32, "2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field(
        array(ShareAcknowledgeTopicResponse), "0+", factory=list
    )
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "0+", factory=list)
