"""DescribeClientQuotas (API key 48)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Message, Struct, array, field


class ComponentData(Struct):
    entity_type: str = field(STRING, "0+", default="")
    match_type: int = field(INT8, "0+", default=0)
    match: str | None = field(STRING, "0+", default="", nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    """Describe quotas by a filter of entities (exact 0, default 1, any 2) (KIP-546). Versions 0 to 1;
    flexible from 1."""

    components: list[ComponentData] = field(array(ComponentData), "0+", factory=list)
    strict: bool = field(BOOL, "0+", default=False)


class EntityData(Struct):
    entity_type: str = field(STRING, "0+", default="")
    entity_name: str | None = field(STRING, "0+", default="", nullable="0+")


class ValueData(Struct):
    key: str = field(STRING, "0+", default="")
    value: float = field(FLOAT64, "0+", default=0.0)


class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData), "0+", factory=list)
    values: list[ValueData] = field(array(ValueData), "0+", factory=list)


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    """The answer to `DescribeClientQuotasRequest`. Versions 0 to 1; flexible from 1."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    entries: list[EntryData] | None = field(array(EntryData), "0+", factory=list, nullable="0+")
