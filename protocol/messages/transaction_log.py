"""Key and value of `__transaction_state` (KIP-98)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, INT64, STRING, Message, Struct, array, field


class TransactionLogKey(Message, api_key=0, versions="0"):
    """Key of a transaction: its transactional id. Version 0."""

    transactional_id: str = field(STRING, "0", default="")


class PartitionsSchema(Struct):
    topic: str = field(STRING, "0+", default="")
    partition_ids: list[int] = field(array(INT32), "0+", factory=list)


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    """State of a transaction (KIP-98, KIP-890). Versions 0 to 1; flexible from 1."""

    producer_id: int = field(INT64, "0+", default=0)
    previous_producer_id: int = field(INT64, "1+", default=-1, tag=0)
    next_producer_id: int = field(INT64, "1+", default=-1, tag=1)
    producer_epoch: int = field(INT16, "0+", default=0)
    next_producer_epoch: int = field(INT16, "1+", default=-1, tag=3)
    transaction_timeout_ms: int = field(INT32, "0+", default=0)
    transaction_status: int = field(INT8, "0+", default=0)
    transaction_partitions: list[PartitionsSchema] | None = field(
        array(PartitionsSchema), "0+", factory=list, nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = field(INT64, "0+", default=0)
    transaction_start_timestamp_ms: int = field(INT64, "0+", default=0)
    client_transaction_version: int = field(INT16, "1+", default=0, tag=2)
