"""TxnOffsetCommit (API key 28)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    committed_offset: int = field(INT64, "0+", default=0)
    committed_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, "0+", default="", nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[TxnOffsetCommitRequestPartition] = field(
        array(TxnOffsetCommitRequestPartition), "0+", factory=list
    )


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    """Commit offsets that take effect with the transaction. Version 3: fenced by generation and member
    (KIP-98, KIP-447, KIP-890). Versions 0 to 5; flexible from 3."""

    transactional_id: str = field(STRING, "0+", default="")
    group_id: str = field(STRING, "0+", default="")
    producer_id: int = field(INT64, "0+", default=0)
    producer_epoch: int = field(INT16, "0+", default=0)
    generation_id: int = field(INT32, "3+", default=-1)
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic), "0+", factory=list)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[TxnOffsetCommitResponsePartition] = field(
        array(TxnOffsetCommitResponsePartition), "0+", factory=list
    )


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    """The answer to `TxnOffsetCommitRequest`. Versions 0 to 5; flexible from 3."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(
        array(TxnOffsetCommitResponseTopic), "0+", factory=list
    )
