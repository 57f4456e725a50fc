"""ListGroups (API key 16)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    """List the groups of a broker. Version 4: filter by state; 5: filter by type (KIP-518, KIP-848).
    Versions 0 to 5; flexible from 3."""

    states_filter: list[str] = field(array(STRING), "4+", factory=list)
    types_filter: list[str] = field(array(STRING), "5+", factory=list)


class ListedGroup(Struct):
    group_id: str = field(STRING, "0+", default="")
    protocol_type: str = field(STRING, "0+", default="")
    group_state: str = field(STRING, "4+", default="", ignorable=True)
    group_type: str = field(STRING, "5+", default="", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    """The answer to `ListGroupsRequest`. Versions 0 to 5; flexible from 3."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+", default=0)
    groups: list[ListedGroup] = field(array(ListedGroup), "0+", factory=list)
