"""Headers of requests and responses."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, field


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """The header of every request. Version 2 if the request version is flexible; the client id is never compact
    (KIP-482). Versions 0 to 2; flexible from 2."""

    request_api_key: int = field(INT16, "0+", default=0)
    request_api_version: int = field(INT16, "0+", default=0)
    correlation_id: int = field(INT32, "0+", default=0)
    client_id: str | None = field(STRING, "1+", default="", nullable="1+", classic=True)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The header of every response. Version 1 if the response is flexible, but always 0 for ApiVersions (KIP-482,
    KIP-511). Versions 0 to 1; flexible from 1."""

    correlation_id: int = field(INT32, "0+", default=0)
