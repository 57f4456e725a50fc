"""InitializeShareGroupState (API key 83)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class PartitionData(Struct):
    partition: int = field(INT32, "0+", default=0)
    state_epoch: int = field(INT32, "0+", default=0)
    start_offset: int = field(INT64, "0+", default=0)


class InitializeStateData(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionData] = field(array(PartitionData), "0+", factory=list)


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    """Make the state of share partitions at the share coordinator (KIP-932). Version 0; flexible."""

    group_id: str = field(STRING, "0+", default="")
    topics: list[InitializeStateData] = field(array(InitializeStateData), "0+", factory=list)


class PartitionResult(Struct):
    partition: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


class InitializeStateResult(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult), "0+", factory=list)


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    """The answer to `InitializeShareGroupStateRequest`. Version 0; flexible."""

    results: list[InitializeStateResult] = field(array(InitializeStateResult), "0+", factory=list)
