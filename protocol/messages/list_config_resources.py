"""ListConfigResources (API key 74)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    """List the names of configured resources. Version 0: client metrics only; 1: any type (KIP-714,
    KIP-1142). Versions 0 to 1; flexible."""

    resource_types: list[int] = field(array(INT8), "1+", factory=list)


class ConfigResource(Struct):
    resource_name: str = field(STRING, "0+", default="")
    resource_type: int = field(INT8, "1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    """The answer to `ListConfigResourcesRequest`. Versions 0 to 1; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    config_resources: list[ConfigResource] = field(array(ConfigResource), "0+", factory=list)
