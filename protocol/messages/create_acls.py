"""CreateAcls (API key 30)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class AclCreation(Struct):
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    resource_pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    operation: int = field(INT8, "0+", default=0)
    permission_type: int = field(INT8, "0+", default=0)


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    """Create ACL bindings (KIP-140, KIP-290, KIP-373). Versions 1 to 3; flexible from 2."""

    creations: list[AclCreation] = field(array(AclCreation), "0+", factory=list)


class AclCreationResult(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    """The answer to `CreateAclsRequest`. Versions 1 to 3; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[AclCreationResult] = field(array(AclCreationResult), "0+", factory=list)
