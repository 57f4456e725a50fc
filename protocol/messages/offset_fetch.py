"""OffsetFetch (API key 9)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class OffsetFetchRequestTopic(Struct):
    name: str = field(STRING, "0-7", default="")
    partition_indexes: list[int] = field(array(INT32), "0-7", factory=list)


class OffsetFetchRequestTopics(Struct):
    name: str = field(STRING, "8-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int] = field(array(INT32), "8+", factory=list)


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(STRING, "8+", default="")
    member_id: str | None = field(STRING, "9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        array(OffsetFetchRequestTopics), "8+", factory=list, nullable="8+"
    )


class OffsetFetchRequest(Message, api_key=9, versions="0-10", flexible="6+"):
    """Read the committed offsets of a group. Version 2: null asks for all topics; 7: only offsets that no
    transaction may still change; 8: many groups; 9: member epochs; 10: topic ids (KIP-447, KIP-709,
    KIP-848, KIP-516). Versions 0 to 10; flexible from 6."""

    group_id: str = field(STRING, "0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), "0-7", factory=list, nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), "8+", factory=list)
    require_stable: bool = field(BOOL, "7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(INT32, "0-7", default=0)
    committed_offset: int = field(INT64, "0-7", default=0)
    committed_leader_epoch: int = field(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "0-7", default="", nullable="0-7")
    error_code: int = field(INT16, "0-7", default=0)


class OffsetFetchResponseTopic(Struct):
    name: str = field(STRING, "0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = field(
        array(OffsetFetchResponsePartition), "0-7", factory=list
    )


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(INT32, "8+", default=0)
    committed_offset: int = field(INT64, "8+", default=0)
    committed_leader_epoch: int = field(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "8+", default="", nullable="8+")
    error_code: int = field(INT16, "8+", default=0)


class OffsetFetchResponseTopics(Struct):
    name: str = field(STRING, "8-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(
        array(OffsetFetchResponsePartitions), "8+", factory=list
    )


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING, "8+", default="")
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics), "8+", factory=list)
    error_code: int = field(INT16, "8+", default=0)


class OffsetFetchResponse(Message, api_key=9, versions="0-10", flexible="6+"):
    """The answer to `OffsetFetchRequest`. Versions 0 to 10; flexible from 6."""

    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "0-7", factory=list)
    error_code: int = field(INT16, "2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), "8+", factory=list)
