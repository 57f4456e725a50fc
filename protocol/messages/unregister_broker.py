"""UnregisterBroker (API key 64)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, field


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    """Remove the registration of a broker for good (KIP-631). Version 0; flexible."""

    broker_id: int = field(INT32, "0+", default=0)


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    """The answer to `UnregisterBrokerRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
