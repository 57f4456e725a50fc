"""The `quorum-state` file, in which a KRaft node remembers its vote (KIP-595)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT32, INT64, STRING, UUID, Message, Struct, array, field


class Voter(Struct):
    voter_id: int = field(INT32, "0", default=0)


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """Leader, epoch and vote of this node. Written before a vote is answered. Versions 0 to 1; flexible."""

    cluster_id: str = field(STRING, "0", default="")
    leader_id: int = field(INT32, "0+", default=-1)
    leader_epoch: int = field(INT32, "0+", default=-1)
    voted_id: int = field(INT32, "0+", default=-1)
    voted_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID)
    applied_offset: int = field(INT64, "0", default=0)
    current_voters: list[Voter] | None = field(array(Voter), "0", factory=list, nullable="0")
