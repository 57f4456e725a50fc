"""RenewDelegationToken (API key 39)."""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT16, INT32, INT64, Message, field


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    """Renew a delegation token (KIP-48). Versions 1 to 2; flexible from 2."""

    hmac: bytes = field(BYTES, "0+", default=b"")
    renew_period_ms: int = field(INT64, "0+", default=0)


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    """The answer to `RenewDelegationTokenRequest`. Versions 1 to 2; flexible from 2."""

    error_code: int = field(INT16, "0+", default=0)
    expiry_timestamp_ms: int = field(INT64, "0+", default=0)
    throttle_time_ms: int = field(INT32, "0+", default=0)
