"""DescribeDelegationToken (API key 41)."""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT16, INT32, INT64, STRING, Message, Struct, array, field


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(STRING, "0+", default="")
    principal_name: str = field(STRING, "0+", default="")


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    """Describe delegation tokens (KIP-48, KIP-373). Versions 1 to 3; flexible from 2."""

    owners: list[DescribeDelegationTokenOwner] | None = field(
        array(DescribeDelegationTokenOwner), "0+", factory=list, nullable="0+"
    )


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field(STRING, "0+", default="")
    principal_name: str = field(STRING, "0+", default="")


class DescribedDelegationToken(Struct):
    principal_type: str = field(STRING, "0+", default="")
    principal_name: str = field(STRING, "0+", default="")
    token_requester_principal_type: str = field(STRING, "3+", default="")
    token_requester_principal_name: str = field(STRING, "3+", default="")
    issue_timestamp: int = field(INT64, "0+", default=0)
    expiry_timestamp: int = field(INT64, "0+", default=0)
    max_timestamp: int = field(INT64, "0+", default=0)
    token_id: str = field(STRING, "0+", default="")
    hmac: bytes = field(BYTES, "0+", default=b"")
    renewers: list[DescribedDelegationTokenRenewer] = field(
        array(DescribedDelegationTokenRenewer), "0+", factory=list
    )


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    """The answer to `DescribeDelegationTokenRequest`. Versions 1 to 3; flexible from 2."""

    error_code: int = field(INT16, "0+", default=0)
    tokens: list[DescribedDelegationToken] = field(array(DescribedDelegationToken), "0+", factory=list)
    throttle_time_ms: int = field(INT32, "0+", default=0)
