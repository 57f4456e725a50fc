"""DescribeTransactions (API key 65)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    """Describe transactions by their ids (KIP-664). Version 0; flexible."""

    transactional_ids: list[str] = field(array(STRING), "0+", factory=list)


class TopicData(Struct):
    topic: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class TransactionState(Struct):
    error_code: int = field(INT16, "0+", default=0)
    transactional_id: str = field(STRING, "0+", default="")
    transaction_state: str = field(STRING, "0+", default="")
    transaction_timeout_ms: int = field(INT32, "0+", default=0)
    transaction_start_time_ms: int = field(INT64, "0+", default=0)
    producer_id: int = field(INT64, "0+", default=0)
    producer_epoch: int = field(INT16, "0+", default=0)
    topics: list[TopicData] = field(array(TopicData), "0+", factory=list)


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    """The answer to `DescribeTransactionsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    transaction_states: list[TransactionState] = field(array(TransactionState), "0+", factory=list)
