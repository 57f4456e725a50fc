"""DeleteShareGroupState (API key 86)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field


class PartitionData(Struct):
    partition: int = field(INT32, "0+", default=0)


class DeleteStateData(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionData] = field(array(PartitionData), "0+", factory=list)


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    """Delete the state of share partitions at the share coordinator (KIP-932). Version 0; flexible."""

    group_id: str = field(STRING, "0+", default="")
    topics: list[DeleteStateData] = field(array(DeleteStateData), "0+", factory=list)


class PartitionResult(Struct):
    partition: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


class DeleteStateResult(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult), "0+", factory=list)


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    """The answer to `DeleteShareGroupStateRequest`. Version 0; flexible."""

    results: list[DeleteStateResult] = field(array(DeleteStateResult), "0+", factory=list)
