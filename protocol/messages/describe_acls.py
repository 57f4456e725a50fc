"""DescribeAcls (API key 29)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    """List the ACL bindings that match a filter (KIP-11, KIP-140, KIP-290). Versions 1 to 3; flexible from
    2."""

    resource_type_filter: int = field(INT8, "0+", default=0)
    resource_name_filter: str | None = field(STRING, "0+", default="", nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "0+", default="", nullable="0+")
    host_filter: str | None = field(STRING, "0+", default="", nullable="0+")
    operation: int = field(INT8, "0+", default=0)
    permission_type: int = field(INT8, "0+", default=0)


class AclDescription(Struct):
    principal: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    operation: int = field(INT8, "0+", default=0)
    permission_type: int = field(INT8, "0+", default=0)


class DescribeAclsResource(Struct):
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    pattern_type: int = field(INT8, "1+", default=3)
    acls: list[AclDescription] = field(array(AclDescription), "0+", factory=list)


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    """The answer to `DescribeAclsRequest`. Versions 1 to 3; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource), "0+", factory=list)
