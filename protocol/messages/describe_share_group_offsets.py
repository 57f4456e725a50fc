"""DescribeShareGroupOffsets (API key 90)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = field(STRING, "0+", default="")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        array(DescribeShareGroupOffsetsRequestTopic), "0+", factory=list, nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    """Describe the start offsets of share groups. Version 1: lag (KIP-932, KIP-1226). Versions 0 to 1;
    flexible."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(
        array(DescribeShareGroupOffsetsRequestGroup), "0+", factory=list
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    start_offset: int = field(INT64, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    lag: int = field(INT64, "1+", default=-1, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING, "0+", default="")
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        array(DescribeShareGroupOffsetsResponsePartition), "0+", factory=list
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = field(STRING, "0+", default="")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(
        array(DescribeShareGroupOffsetsResponseTopic), "0+", factory=list
    )
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    """The answer to `DescribeShareGroupOffsetsRequest`. Versions 0 to 1; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(
        array(DescribeShareGroupOffsetsResponseGroup), "0+", factory=list
    )
