"""EndTxn (API key 26)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, field


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    """Commit or abort a transaction. Version 5: the answer gives the bumped producer id and epoch (KIP-98,
    KIP-890). Versions 0 to 5; flexible from 3."""

    transactional_id: str = field(STRING, "0+", default="")
    producer_id: int = field(INT64, "0+", default=0)
    producer_epoch: int = field(INT16, "0+", default=0)
    committed: bool = field(BOOL, "0+", default=False)


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    """The answer to `EndTxnRequest`. Versions 0 to 5; flexible from 3."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    producer_id: int = field(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(INT16, "5+", default=-1, ignorable=True)
