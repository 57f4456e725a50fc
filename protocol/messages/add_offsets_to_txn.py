"""AddOffsetsToTxn (API key 25)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, field


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    """Add the offsets of a group to a transaction (KIP-98). Versions 0 to 4; flexible from 3."""

    transactional_id: str = field(STRING, "0+", default="")
    producer_id: int = field(INT64, "0+", default=0)
    producer_epoch: int = field(INT16, "0+", default=0)
    group_id: str = field(STRING, "0+", default="")


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    """The answer to `AddOffsetsToTxnRequest`. Versions 0 to 4; flexible from 3."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
