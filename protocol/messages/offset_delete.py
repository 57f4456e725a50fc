"""OffsetDelete (API key 47)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[OffsetDeleteRequestPartition] = field(
        array(OffsetDeleteRequestPartition), "0+", factory=list
    )


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    """Delete committed offsets of topics that the group no longer subscribes to (KIP-496). Version 0."""

    group_id: str = field(STRING, "0+", default="")
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic), "0+", factory=list)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)


class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[OffsetDeleteResponsePartition] = field(
        array(OffsetDeleteResponsePartition), "0+", factory=list
    )


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    """The answer to `OffsetDeleteRequest`. Version 0."""

    error_code: int = field(INT16, "0+", default=0)
    throttle_time_ms: int = field(INT32, "0+", default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic), "0+", factory=list)
