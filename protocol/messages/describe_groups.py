"""DescribeGroups (API key 15)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, Message, Struct, array, field


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    """Describe classic groups. Version 3: authorized operations; 4: static members; 6: error messages
    (KIP-430, KIP-345, KIP-1043). Versions 0 to 6; flexible from 5."""

    groups: list[str] = field(array(STRING), "0+", factory=list)
    include_authorized_operations: bool = field(BOOL, "3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str = field(STRING, "0+", default="")
    group_instance_id: str | None = field(STRING, "4+", default=None, nullable="4+", ignorable=True)
    client_id: str = field(STRING, "0+", default="")
    client_host: str = field(STRING, "0+", default="")
    member_metadata: bytes = field(BYTES, "0+", default=b"")
    member_assignment: bytes = field(BYTES, "0+", default=b"")


class DescribedGroup(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "6+", default=None, nullable="6+")
    group_id: str = field(STRING, "0+", default="")
    group_state: str = field(STRING, "0+", default="")
    protocol_type: str = field(STRING, "0+", default="")
    protocol_data: str = field(STRING, "0+", default="")
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember), "0+", factory=list)
    authorized_operations: int = field(INT32, "3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    """The answer to `DescribeGroupsRequest`. Versions 0 to 6; flexible from 5."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup), "0+", factory=list)
