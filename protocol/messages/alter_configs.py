"""AlterConfigs (API key 33)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field


class AlterableConfig(Struct):
    name: str = field(STRING, "0+", default="")
    value: str | None = field(STRING, "0+", default="", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    configs: list[AlterableConfig] = field(array(AlterableConfig), "0+", factory=list)


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    """Replace all configurations of resources; what is not named falls back to its default (KIP-133).
    Versions 0 to 2; flexible from 2."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource), "0+", factory=list)
    validate_only: bool = field(BOOL, "0+", default=False)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    """The answer to `AlterConfigsRequest`. Versions 0 to 2; flexible from 2."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field(
        array(AlterConfigsResourceResponse), "0+", factory=list
    )
