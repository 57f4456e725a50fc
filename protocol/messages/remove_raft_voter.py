"""RemoveRaftVoter (API key 81)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, field


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    """Remove a voter from the metadata quorum (KIP-853). Version 0; flexible."""

    cluster_id: str | None = field(STRING, "0+", default="", nullable="0+")
    voter_id: int = field(INT32, "0+", default=0)
    voter_directory_id: bytes = field(UUID, "0+", default=ZERO_UUID)


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    """The answer to `RemoveRaftVoterRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+", ignorable=True)
