"""AddPartitionsToTxn (API key 24)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field


class AddPartitionsToTxnTopic(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(STRING, "4+", default="")
    producer_id: int = field(INT64, "4+", default=0)
    producer_epoch: int = field(INT16, "4+", default=0)
    verify_only: bool = field(BOOL, "4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "4+", factory=list)


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    """Add partitions to a transaction. Versions 0 to 3 come from clients; from 4 on from brokers, for many
    transactions, or only to verify (KIP-98, KIP-890). Versions 0 to 5; flexible from 3."""

    transactions: list[AddPartitionsToTxnTransaction] = field(
        array(AddPartitionsToTxnTransaction), "4+", factory=list
    )
    v3_and_below_transactional_id: str = field(STRING, "0-3", default="")
    v3_and_below_producer_id: int = field(INT64, "0-3", default=0)
    v3_and_below_producer_epoch: int = field(INT16, "0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), "0-3", factory=list
    )


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(INT32, "0+", default=0)
    partition_error_code: int = field(INT16, "0+", default=0)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(STRING, "0+", default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult), "0+", factory=list
    )


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(STRING, "4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "4+", factory=list
    )


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    """The answer to `AddPartitionsToTxnRequest`. Versions 0 to 5; flexible from 3."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array(AddPartitionsToTxnResult), "4+", factory=list
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "0-3", factory=list
    )
