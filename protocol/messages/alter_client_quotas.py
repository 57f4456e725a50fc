"""AlterClientQuotas (API key 49)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, FLOAT64, INT16, INT32, STRING, Message, Struct, array, field


class EntityData(Struct):
    entity_type: str = field(STRING, "0+", default="")
    entity_name: str | None = field(STRING, "0+", default="", nullable="0+")


class OpData(Struct):
    key: str = field(STRING, "0+", default="")
    value: float = field(FLOAT64, "0+", default=0.0)
    remove: bool = field(BOOL, "0+", default=False)


class RequestEntryData(Struct):
    entity: list[EntityData] = field(array(EntityData), "0+", factory=list)
    ops: list[OpData] = field(array(OpData), "0+", factory=list)


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    """Alter the quotas of entities: users, client ids, ips (KIP-546, KIP-612). Versions 0 to 1; flexible
    from 1."""

    entries: list[RequestEntryData] = field(array(RequestEntryData), "0+", factory=list)
    validate_only: bool = field(BOOL, "0+", default=False)


class ResponseEntryData(Struct):
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
    entity: list[EntityData] = field(array(EntityData), "0+", factory=list)


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    """The answer to `AlterClientQuotasRequest`. Versions 0 to 1; flexible from 1."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    entries: list[ResponseEntryData] = field(array(ResponseEntryData), "0+", factory=list)
