"""ExpireDelegationToken (API key 40)."""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT16, INT32, INT64, Message, field


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    """Let a delegation token expire (KIP-48). Versions 1 to 2; flexible from 2."""

    hmac: bytes = field(BYTES, "0+", default=b"")
    expiry_time_period_ms: int = field(INT64, "0+", default=0)


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    """The answer to `ExpireDelegationTokenRequest`. Versions 1 to 2; flexible from 2."""

    error_code: int = field(INT16, "0+", default=0)
    expiry_timestamp_ms: int = field(INT64, "0+", default=0)
    throttle_time_ms: int = field(INT32, "0+", default=0)
