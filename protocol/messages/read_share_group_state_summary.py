"""ReadShareGroupStateSummary (API key 87)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class PartitionData(Struct):
    partition: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)


class ReadStateSummaryData(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionData] = field(array(PartitionData), "0+", factory=list)


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    """Read a summary of the state of share partitions. Version 1: count of completed deliveries (KIP-932,
    KIP-1226). Versions 0 to 1; flexible."""

    group_id: str = field(STRING, "0+", default="")
    topics: list[ReadStateSummaryData] = field(array(ReadStateSummaryData), "0+", factory=list)


class PartitionResult(Struct):
    partition: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    state_epoch: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    start_offset: int = field(INT64, "0+", default=0)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult), "0+", factory=list)


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    """The answer to `ReadShareGroupStateSummaryRequest`. Versions 0 to 1; flexible."""

    results: list[ReadStateSummaryResult] = field(array(ReadStateSummaryResult), "0+", factory=list)
