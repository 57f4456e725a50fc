"""GetTelemetrySubscriptions (API key 71)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Message, array, field


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    """A client asks which metrics it should push (KIP-714). Version 0; flexible."""

    client_instance_id: bytes = field(UUID, "0+", default=ZERO_UUID)


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    """The answer to `GetTelemetrySubscriptionsRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    client_instance_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    subscription_id: int = field(INT32, "0+", default=0)
    accepted_compression_types: list[int] = field(array(INT8), "0+", factory=list)
    push_interval_ms: int = field(INT32, "0+", default=0)
    telemetry_max_bytes: int = field(INT32, "0+", default=0)
    delta_temporality: bool = field(BOOL, "0+", default=False)
    requested_metrics: list[str] = field(array(STRING), "0+", factory=list)
