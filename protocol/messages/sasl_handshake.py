"""SaslHandshake (API key 17)."""

from __future__ import annotations

from protocol.schema import INT16, STRING, Message, array, field


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    """Nominate SASL mechanism; v0 raw SASL frames, v1 wrapped frames (KIP-43, KIP-152). Versions 0 to 1."""

    mechanism: str = field(STRING, "0+", default="")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    """The answer to `SaslHandshakeRequest`. Versions 0 to 1."""

    error_code: int = field(INT16, "0+", default=0)
    mechanisms: list[str] = field(array(STRING), "0+", factory=list)
