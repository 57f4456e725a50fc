"""UpdateRaftVoter (API key 82)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, STRING, UINT16, UUID, Message, Struct, array, field, struct


class Listener(Struct):
    name: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(INT16, "0+", default=0)
    max_supported_version: int = field(INT16, "0+", default=0)


class UpdateRaftVoterRequest(Message, api_key=82, versions="0", flexible="0+"):
    """A voter reports its own endpoints and the raft versions it knows (KIP-853). Version 0; flexible."""

    cluster_id: str | None = field(STRING, "0+", default="", nullable="0+")
    current_leader_epoch: int = field(INT32, "0+", default=0)
    voter_id: int = field(INT32, "0+", default=0)
    voter_directory_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    listeners: list[Listener] = field(array(Listener), "0+", factory=list)
    k_raft_version_feature: KRaftVersionFeature = field(
        struct(KRaftVersionFeature), "0+", factory=KRaftVersionFeature
    )


class CurrentLeader(Struct):
    leader_id: int = field(INT32, "0+", default=-1)
    leader_epoch: int = field(INT32, "0+", default=-1)
    host: str = field(STRING, "0+", default="")
    port: int = field(INT32, "0+", default=0)


class UpdateRaftVoterResponse(Message, api_key=82, versions="0", flexible="0+"):
    """The answer to `UpdateRaftVoterRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    current_leader: CurrentLeader = field(struct(CurrentLeader), "0+", factory=CurrentLeader, tag=0)
