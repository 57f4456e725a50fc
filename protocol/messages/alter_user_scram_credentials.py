"""AlterUserScramCredentials (API key 51)."""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT8, INT16, INT32, STRING, Message, Struct, array, field


class ScramCredentialDeletion(Struct):
    name: str = field(STRING, "0+", default="")
    mechanism: int = field(INT8, "0+", default=0)


class ScramCredentialUpsertion(Struct):
    name: str = field(STRING, "0+", default="")
    mechanism: int = field(INT8, "0+", default=0)
    iterations: int = field(INT32, "0+", default=0)
    salt: bytes = field(BYTES, "0+", default=b"")
    salted_password: bytes = field(BYTES, "0+", default=b"")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    """Upsert and delete SCRAM credentials (KIP-554). Version 0; flexible."""

    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion), "0+", factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion), "0+", factory=list)


class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING, "0+", default="")
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    """The answer to `AlterUserScramCredentialsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[AlterUserScramCredentialsResult] = field(
        array(AlterUserScramCredentialsResult), "0+", factory=list
    )
