"""ListOffsets (API key 2)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, INT64, STRING, Message, Struct, array, field


class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = field(INT64, "0+", default=0)
    max_num_offsets: int = field(INT32, "0", default=1)


class ListOffsetsTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition), "0+", factory=list)


class ListOffsetsRequest(Message, api_key=2, versions="0-11", flexible="6+"):
    """Find the offset of a timestamp. -1 asks for the end (for read_committed: the last stable offset), -2
    the start, -3 the maximum timestamp (version 7), -4 the local start (8), -5 the last tiered (9), -6 the
    first not yet tiered (11). Version 0 gives a list of old-style offsets (KIP-79, KIP-207, KIP-405,
    KIP-734, KIP-1005, KIP-1023, KIP-1075). Versions 0 to 11; flexible from 6."""

    replica_id: int = field(INT32, "0+", default=0)
    isolation_level: int = field(INT8, "2+", default=0)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic), "0+", factory=list)
    timeout_ms: int = field(INT32, "10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    old_style_offsets: list[int] = field(array(INT64), "0", factory=list)
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[ListOffsetsPartitionResponse] = field(
        array(ListOffsetsPartitionResponse), "0+", factory=list
    )


class ListOffsetsResponse(Message, api_key=2, versions="0-11", flexible="6+"):
    """The answer to `ListOffsetsRequest`. Versions 0 to 11; flexible from 6."""

    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse), "0+", factory=list)
