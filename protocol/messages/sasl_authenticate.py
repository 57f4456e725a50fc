"""SaslAuthenticate (API key 36)."""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT16, INT64, STRING, Message, field


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    """Carry SASL tokens. Version 1: the answer limits the life of the session (KIP-152, KIP-368). Versions
    0 to 2; flexible from 2."""

    auth_bytes: bytes = field(BYTES, "0+", default=b"")


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    """The answer to `SaslAuthenticateRequest`. Versions 0 to 2; flexible from 2."""

    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    auth_bytes: bytes = field(BYTES, "0+", default=b"")
    session_lifetime_ms: int = field(INT64, "1+", default=0, ignorable=True)
