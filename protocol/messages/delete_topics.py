"""DeleteTopics (API key 20)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field


class DeleteTopicState(Struct):
    name: str | None = field(STRING, "6+", default=None, nullable="6+")
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID)


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    """Delete topics by name or, from version 6 on, by id (KIP-4, KIP-516). Versions 1 to 6; flexible from
    4."""

    topics: list[DeleteTopicState] = field(array(DeleteTopicState), "6+", factory=list)
    topic_names: list[str] = field(array(STRING), "0-5", factory=list, ignorable=True)
    timeout_ms: int = field(INT32, "0+", default=0)


class DeletableTopicResult(Struct):
    name: str | None = field(STRING, "0+", default="", nullable="6+")
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    """The answer to `DeleteTopicsRequest`. Versions 1 to 6; flexible from 4."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult), "0+", factory=list)
