"""DeleteShareGroupOffsets (API key 92)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING, "0+", default="")


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0", flexible="0+"):
    """Delete the offsets of a share group (KIP-932). Version 0; flexible."""

    group_id: str = field(STRING, "0+", default="")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(
        array(DeleteShareGroupOffsetsRequestTopic), "0+", factory=list
    )


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING, "0+", default="")
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+"):
    """The answer to `DeleteShareGroupOffsetsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(
        array(DeleteShareGroupOffsetsResponseTopic), "0+", factory=list
    )
