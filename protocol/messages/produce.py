"""Produce (API key 0)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID, Records
from barnabas.protocol.schema import INT16, INT32, INT64, RECORDS, STRING, UUID, Message, Struct, array, field, struct


class PartitionProduceData(Struct):
    index: int = field(INT32, "0+", default=0)
    records: Records | None = field(RECORDS, "0+", default=None, nullable="0+")


class TopicProduceData(Struct):
    name: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData), "0+", factory=list)


class ProduceRequest(Message, api_key=0, versions="0-13", flexible="9+"):
    """Append record batches to partitions. acks 0 wants no response at all, 1 the leader's append, -1 that
    of all in-sync replicas. Version 3: transactional id; 7: zstd; 8: errors per record; 9: flexible; 10:
    the current leader with an error; 12: adds the partitions to the transaction by itself; 13: topic ids
    (KIP-98, KIP-110, KIP-467, KIP-890, KIP-951, KIP-516). Versions 0 to 13; flexible from 9."""

    transactional_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    acks: int = field(INT16, "0+", default=0)
    timeout_ms: int = field(INT32, "0+", default=0)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData), "0+", factory=list)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(INT32, "8+", default=0)
    batch_index_error_message: str | None = field(STRING, "8+", default=None, nullable="8+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    base_offset: int = field(INT64, "0+", default=0)
    log_append_time_ms: int = field(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), "8+", factory=list, ignorable=True
    )
    error_message: str | None = field(STRING, "8+", default=None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = field(struct(LeaderIdAndEpoch), "10+", factory=LeaderIdAndEpoch, tag=0)


class TopicProduceResponse(Struct):
    name: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(
        array(PartitionProduceResponse), "0+", factory=list
    )


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "10+", default=0)
    host: str = field(STRING, "10+", default="")
    port: int = field(INT32, "10+", default=0)
    rack: str | None = field(STRING, "10+", default=None, nullable="10+")


class ProduceResponse(Message, api_key=0, versions="0-13", flexible="9+"):
    """The answer to `ProduceRequest`. Versions 0 to 13; flexible from 9."""

    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse), "0+", factory=list)
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "10+", factory=list, tag=0)
