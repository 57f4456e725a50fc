"""JoinGroup (API key 11)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, Message, Struct, array, field


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING, "0+", default="")
    metadata: bytes = field(BYTES, "0+", default=b"")


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    """Join a classic group; the answer waits until the group is complete. Version 4: the first answer only
    gives a member id; 5: static members; 7: protocol type; 8: reason; 9: the leader may be instructed to keep the
    assignment (KIP-62, KIP-345, KIP-394, KIP-559, KIP-800, KIP-814). Versions 0 to 9; flexible from 6."""

    group_id: str = field(STRING, "0+", default="")
    session_timeout_ms: int = field(INT32, "0+", default=0)
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "0+", default="")
    group_instance_id: str | None = field(STRING, "5+", default=None, nullable="5+")
    protocol_type: str = field(STRING, "0+", default="")
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol), "0+", factory=list)
    reason: str | None = field(STRING, "8+", default=None, nullable="8+", ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING, "0+", default="")
    group_instance_id: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = field(BYTES, "0+", default=b"")


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    """The answer to `JoinGroupRequest`. Versions 0 to 9; flexible from 6."""

    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    generation_id: int = field(INT32, "0+", default=-1)
    protocol_type: str | None = field(STRING, "7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = field(STRING, "0+", default="", nullable="7+")
    leader: str = field(STRING, "0+", default="")
    skip_assignment: bool = field(BOOL, "9+", default=False)
    member_id: str = field(STRING, "0+", default="")
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember), "0+", factory=list)
