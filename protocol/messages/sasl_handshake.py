"""SaslHandshake (API key 17)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, STRING, Message, array, field


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    """Choose a SASL mechanism. After version 0 the tokens follow as bare frames, after version 1 in
    SaslAuthenticate (KIP-43, KIP-152). Versions 0 to 1."""

    mechanism: str = field(STRING, "0+", default="")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    """The answer to `SaslHandshakeRequest`. Versions 0 to 1."""

    error_code: int = field(INT16, "0+", default=0)
    mechanisms: list[str] = field(array(STRING), "0+", factory=list)
