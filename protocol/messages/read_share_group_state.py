"""ReadShareGroupState (API key 84)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class PartitionData(Struct):
    partition: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)


class ReadStateData(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionData] = field(array(PartitionData), "0+", factory=list)


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+"):
    """Read the state of share partitions from the share coordinator (KIP-932). Version 0; flexible."""

    group_id: str = field(STRING, "0+", default="")
    topics: list[ReadStateData] = field(array(ReadStateData), "0+", factory=list)


class StateBatch(Struct):
    first_offset: int = field(INT64, "0+", default=0)
    last_offset: int = field(INT64, "0+", default=0)
    delivery_state: int = field(INT8, "0+", default=0)
    delivery_count: int = field(INT16, "0+", default=0)


class PartitionResult(Struct):
    partition: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    state_epoch: int = field(INT32, "0+", default=0)
    start_offset: int = field(INT64, "0+", default=0)
    state_batches: list[StateBatch] = field(array(StateBatch), "0+", factory=list)


class ReadStateResult(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult), "0+", factory=list)


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    """The answer to `ReadShareGroupStateRequest`. Version 0; flexible."""

    results: list[ReadStateResult] = field(array(ReadStateResult), "0+", factory=list)
