"""LeaveGroup (API key 13)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class MemberIdentity(Struct):
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    reason: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    """Leave a classic group. Version 3: several members; 5: reasons (KIP-345, KIP-800). Versions 0 to 5;
    flexible from 4."""

    group_id: str = field(STRING, "0+", default="")
    member_id: str = field(STRING, "0-2", default="")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+", factory=list)


class MemberResponse(Struct):
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", default="", nullable="3+")
    error_code: int = field(INT16, "3+", default=0)


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    """The answer to `LeaveGroupRequest`. Versions 0 to 5; flexible from 4."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    members: list[MemberResponse] = field(array(MemberResponse), "3+", factory=list)
