"""DeleteRecords (API key 21)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class DeleteRecordsPartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    offset: int = field(INT64, "0+", default=0)


class DeleteRecordsTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition), "0+", factory=list)


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    """Move the log start offset of partitions up to an offset; -1 means the high watermark (KIP-107).
    Versions 0 to 2; flexible from 2."""

    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic), "0+", factory=list)
    timeout_ms: int = field(INT32, "0+", default=0)


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    low_watermark: int = field(INT64, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)


class DeleteRecordsTopicResult(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[DeleteRecordsPartitionResult] = field(
        array(DeleteRecordsPartitionResult), "0+", factory=list
    )


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    """The answer to `DeleteRecordsRequest`. Versions 0 to 2; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult), "0+", factory=list)
