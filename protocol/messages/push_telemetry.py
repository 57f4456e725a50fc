"""PushTelemetry (API key 72)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, UUID, Message, field


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    """A client pushes metrics (KIP-714). Version 0; flexible."""

    client_instance_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    subscription_id: int = field(INT32, "0+", default=0)
    terminating: bool = field(BOOL, "0+", default=False)
    compression_type: int = field(INT8, "0+", default=0)
    metrics: bytes = field(BYTES, "0+", default=b"")


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    """The answer to `PushTelemetryRequest`. Version 0; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
