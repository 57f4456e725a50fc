"""DescribeUserScramCredentials (API key 50)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class UserName(Struct):
    name: str = field(STRING, "0+", default="")


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    """Describe SCRAM credentials: mechanisms and iterations (KIP-554). Version 0; flexible."""

    users: list[UserName] | None = field(array(UserName), "0+", factory=list, nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = field(INT8, "0+", default=0)
    iterations: int = field(INT32, "0+", default=0)


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(STRING, "0+", default="")
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    credential_infos: list[CredentialInfo] = field(array(CredentialInfo), "0+", factory=list)


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    """The answer to `DescribeUserScramCredentialsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(
        array(DescribeUserScramCredentialsResult), "0+", factory=list
    )
