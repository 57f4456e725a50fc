"""AddRaftVoter (API key 80)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, UINT16, UUID, Message, Struct, array, field


class Listener(Struct):
    name: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    """Add a voter to the metadata quorum. Version 1: may be answered before it is committed (KIP-853,
    KIP-1186). Versions 0 to 1; flexible."""

    cluster_id: str | None = field(STRING, "0+", default="", nullable="0+")
    timeout_ms: int = field(INT32, "0+", default=0)
    voter_id: int = field(INT32, "0+", default=0)
    voter_directory_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    listeners: list[Listener] = field(array(Listener), "0+", factory=list)
    ack_when_committed: bool = field(BOOL, "1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    """The answer to `AddRaftVoterRequest`. Versions 0 to 1; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+", ignorable=True)
