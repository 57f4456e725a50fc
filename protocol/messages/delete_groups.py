"""DeleteGroups (API key 42)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    """Delete groups that are empty (KIP-229). Versions 0 to 2; flexible from 2."""

    groups_names: list[str] = field(array(STRING), "0+", factory=list)


class DeletableGroupResult(Struct):
    group_id: str = field(STRING, "0+", default="")
    error_code: int = field(INT16, "0+", default=0)


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    """The answer to `DeleteGroupsRequest`. Versions 0 to 2; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult), "0+", factory=list)
