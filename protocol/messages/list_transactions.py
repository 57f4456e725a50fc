"""ListTransactions (API key 66)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    """List transactions by state and producer id. Version 1: by duration; 2: by a pattern of the id
    (KIP-664, KIP-994, KIP-1152). Versions 0 to 2; flexible."""

    state_filters: list[str] = field(array(STRING), "0+", factory=list)
    producer_id_filters: list[int] = field(array(INT64), "0+", factory=list)
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", default=None, nullable="2+")


class TransactionState(Struct):
    transactional_id: str = field(STRING, "0+", default="")
    producer_id: int = field(INT64, "0+", default=0)
    transaction_state: str = field(STRING, "0+", default="")


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    """The answer to `ListTransactionsRequest`. Versions 0 to 2; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    unknown_state_filters: list[str] = field(array(STRING), "0+", factory=list)
    transaction_states: list[TransactionState] = field(array(TransactionState), "0+", factory=list)
