"""OffsetCommit (API key 8)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    committed_offset: int = field(INT64, "0+", default=0)
    committed_leader_epoch: int = field(INT32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = field(INT64, "1", default=-1)
    committed_metadata: str | None = field(STRING, "0+", default="", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(
        array(OffsetCommitRequestPartition), "0+", factory=list
    )


class OffsetCommitRequest(Message, api_key=8, versions="0-10", flexible="8+"):
    """Commit offsets of a group. Version 6: leader epochs; 7: static members; 9: groups of the new
    protocol; 10: topic ids (KIP-211, KIP-320, KIP-345, KIP-848, KIP-516). Versions 0 to 10; flexible from
    8."""

    group_id: str = field(STRING, "0+", default="")
    generation_id_or_member_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "1+", default="", ignorable=True)
    group_instance_id: str | None = field(STRING, "7+", default=None, nullable="7+")
    retention_time_ms: int = field(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic), "0+", factory=list)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(
        array(OffsetCommitResponsePartition), "0+", factory=list
    )


class OffsetCommitResponse(Message, api_key=8, versions="0-10", flexible="8+"):
    """The answer to `OffsetCommitRequest`. Versions 0 to 10; flexible from 8."""

    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic), "0+", factory=list)
