"""DescribeProducers (API key 61)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class TopicRequest(Struct):
    name: str = field(STRING, "0+", default="")
    partition_indexes: list[int] = field(array(INT32), "0+", factory=list)


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    """Describe the active producers of partitions: epoch, last sequence, start of the transaction (KIP-664).
    Version 0; flexible."""

    topics: list[TopicRequest] = field(array(TopicRequest), "0+", factory=list)


class ProducerState(Struct):
    producer_id: int = field(INT64, "0+", default=0)
    producer_epoch: int = field(INT32, "0+", default=0)
    last_sequence: int = field(INT32, "0+", default=-1)
    last_timestamp: int = field(INT64, "0+", default=-1)
    coordinator_epoch: int = field(INT32, "0+", default=0)
    current_txn_start_offset: int = field(INT64, "0+", default=-1)


class PartitionResponse(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = field(array(ProducerState), "0+", factory=list)


class TopicResponse(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[PartitionResponse] = field(array(PartitionResponse), "0+", factory=list)


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    """The answer to `DescribeProducersRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    topics: list[TopicResponse] = field(array(TopicResponse), "0+", factory=list)
