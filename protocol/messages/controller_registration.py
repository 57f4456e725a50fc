"""ControllerRegistration (API key 70)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, UINT16, UUID, Message, Struct, array, field


class Listener(Struct):
    name: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)
    security_protocol: int = field(INT16, "0+", default=0)


class Feature(Struct):
    name: str = field(STRING, "0+", default="")
    min_supported_version: int = field(INT16, "0+", default=0)
    max_supported_version: int = field(INT16, "0+", default=0)


class ControllerRegistrationRequest(Message, api_key=70, versions="0", flexible="0+"):
    """A controller reports its endpoints and features to the active controller (KIP-919). Version 0; flexible."""

    controller_id: int = field(INT32, "0+", default=0)
    incarnation_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    zk_migration_ready: bool = field(BOOL, "0+", default=False)
    listeners: list[Listener] = field(array(Listener), "0+", factory=list)
    features: list[Feature] = field(array(Feature), "0+", factory=list)


class ControllerRegistrationResponse(Message, api_key=70, versions="0", flexible="0+"):
    """The answer to `ControllerRegistrationRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    error_message: str | None = field(STRING, "0+", default="", nullable="0+")
