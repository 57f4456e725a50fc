"""BrokerRegistration (API key 62)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UINT16, UUID, Message, Struct, array, field


class Listener(Struct):
    name: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)
    security_protocol: int = field(INT16, "0+", default=0)


class Feature(Struct):
    name: str = field(STRING, "0+", default="")
    min_supported_version: int = field(INT16, "0+", default=0)
    max_supported_version: int = field(INT16, "0+", default=0)


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    """A broker registers with the controller and gets its epoch. Version 2: log directories; 3: previous
    epoch; 4: features may start at 0 (KIP-631, KIP-858, KIP-866, KIP-1022). Versions 0 to 4; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    cluster_id: str = field(STRING, "0+", default="")
    incarnation_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    listeners: list[Listener] = field(array(Listener), "0+", factory=list)
    features: list[Feature] = field(array(Feature), "0+", factory=list)
    rack: str | None = field(STRING, "0+", default="", nullable="0+")
    is_migrating_zk_broker: bool = field(BOOL, "1+", default=False)
    log_dirs: list[bytes] = field(array(UUID), "2+", factory=list, ignorable=True)
    previous_broker_epoch: int = field(INT64, "3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    """The answer to `BrokerRegistrationRequest`. Versions 0 to 4; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    broker_epoch: int = field(INT64, "0+", default=-1)
