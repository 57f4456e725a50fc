"""IncrementalAlterConfigs (API key 44)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field


class AlterableConfig(Struct):
    name: str = field(STRING, "0+", default="")
    config_operation: int = field(INT8, "0+", default=0)
    value: str | None = field(STRING, "0+", default="", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    configs: list[AlterableConfig] = field(array(AlterableConfig), "0+", factory=list)


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    """Change single configurations: set 0, delete 1, append 2, subtract 3 (KIP-339). Versions 0 to 1;
    flexible from 1."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource), "0+", factory=list)
    validate_only: bool = field(BOOL, "0+", default=False)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    """The answer to `IncrementalAlterConfigsRequest`. Versions 0 to 1; flexible from 1."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field(
        array(AlterConfigsResourceResponse), "0+", factory=list
    )
