"""DescribeConfigs (API key 32)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field


class DescribeConfigsResource(Struct):
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    configuration_keys: list[str] | None = field(array(STRING), "0+", factory=list, nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    """Describe effective configurations with their sources. Resources: topic 2, broker 4, broker logger 8,
    client metrics 16, group 32 (KIP-133, KIP-226, KIP-412, KIP-569). Versions 1 to 4; flexible from 4."""

    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource), "0+", factory=list)
    include_synonyms: bool = field(BOOL, "1+", default=False)
    include_documentation: bool = field(BOOL, "3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: str = field(STRING, "1+", default="")
    value: str | None = field(STRING, "1+", default="", nullable="0+")
    source: int = field(INT8, "1+", default=0)


class DescribeConfigsResourceResult(Struct):
    name: str = field(STRING, "0+", default="")
    value: str | None = field(STRING, "0+", default="", nullable="0+")
    read_only: bool = field(BOOL, "0+", default=False)
    config_source: int = field(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "0+", default=False)
    synonyms: list[DescribeConfigsSynonym] = field(
        array(DescribeConfigsSynonym), "1+", factory=list, ignorable=True
    )
    config_type: int = field(INT8, "3+", default=0, ignorable=True)
    documentation: str | None = field(STRING, "3+", default="", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    configs: list[DescribeConfigsResourceResult] = field(
        array(DescribeConfigsResourceResult), "0+", factory=list
    )


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    """The answer to `DescribeConfigsRequest`. Versions 1 to 4; flexible from 4."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult), "0+", factory=list)
