"""SyncGroup (API key 14)."""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT16, INT32, STRING, Message, Struct, array, field


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING, "0+", default="")
    assignment: bytes = field(BYTES, "0+", default=b"")


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    """Get the assignment of a classic group; its leader also brings it (KIP-345, KIP-559). Versions 0 to 5;
    flexible from 4."""

    group_id: str = field(STRING, "0+", default="")
    generation_id: int = field(INT32, "0+", default=0)
    member_id: str = field(STRING, "0+", default="")
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    protocol_type: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(
        array(SyncGroupRequestAssignment), "0+", factory=list
    )


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    """The answer to `SyncGroupRequest`. Versions 0 to 5; flexible from 4."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    protocol_type: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = field(BYTES, "0+", default=b"")
