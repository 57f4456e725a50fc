"""AlterShareGroupOffsets (API key 91)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    start_offset: int = field(INT64, "0+", default=0)


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(
        array(AlterShareGroupOffsetsRequestPartition), "0+", factory=list
    )


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions="0", flexible="0+"):
    """Alter the start offsets of a share group (KIP-932). Version 0; flexible."""

    group_id: str = field(STRING, "0+", default="")
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(
        array(AlterShareGroupOffsetsRequestTopic), "0+", factory=list
    )


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING, "0+", default="")
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(
        array(AlterShareGroupOffsetsResponsePartition), "0+", factory=list
    )


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0", flexible="0+"):
    """The answer to `AlterShareGroupOffsetsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(
        array(AlterShareGroupOffsetsResponseTopic), "0+", factory=list
    )
