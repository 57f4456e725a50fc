"""WriteShareGroupState (API key 85)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class StateBatch(Struct):
    first_offset: int = field(INT64, "0+", default=0)
    last_offset: int = field(INT64, "0+", default=0)
    delivery_state: int = field(INT8, "0+", default=0)
    delivery_count: int = field(INT16, "0+", default=0)


class PartitionData(Struct):
    partition: int = field(INT32, "0+", default=0)
    state_epoch: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    start_offset: int = field(INT64, "0+", default=0)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = field(array(StateBatch), "0+", factory=list)


class WriteStateData(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionData] = field(array(PartitionData), "0+", factory=list)


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    """Write the state of share partitions to the share coordinator. Version 1: count of completed
    deliveries (KIP-932, KIP-1226). Versions 0 to 1; flexible."""

    group_id: str = field(STRING, "0+", default="")
    topics: list[WriteStateData] = field(array(WriteStateData), "0+", factory=list)


class PartitionResult(Struct):
    partition: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


class WriteStateResult(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult), "0+", factory=list)


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    """The answer to `WriteShareGroupStateRequest`. Versions 0 to 1; flexible."""

    results: list[WriteStateResult] = field(array(WriteStateResult), "0+", factory=list)
