"""DeleteAcls (API key 31)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class DeleteAclsFilter(Struct):
    resource_type_filter: int = field(INT8, "0+", default=0)
    resource_name_filter: str | None = field(STRING, "0+", default="", nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "0+", default="", nullable="0+")
    host_filter: str | None = field(STRING, "0+", default="", nullable="0+")
    operation: int = field(INT8, "0+", default=0)
    permission_type: int = field(INT8, "0+", default=0)


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    """Delete the ACL bindings that match filters (KIP-140, KIP-290). Versions 1 to 3; flexible from 2."""

    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter), "0+", factory=list)


class DeleteAclsMatchingAcl(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    operation: int = field(INT8, "0+", default=0)
    permission_type: int = field(INT8, "0+", default=0)


class DeleteAclsFilterResult(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl), "0+", factory=list)


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    """The answer to `DeleteAclsRequest`. Versions 1 to 3; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult), "0+", factory=list)
