"""BrokerHeartbeat (API key 63)."""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, UUID, Message, array, field


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    """A broker is alive, and reports how far it has read the metadata log; it wants to be unfenced, fenced or to
    shut down. Version 1: offline directories; 2: cordoned ones (KIP-631, KIP-858, KIP-1066). Versions 0 to
    2; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    broker_epoch: int = field(INT64, "0+", default=-1)
    current_metadata_offset: int = field(INT64, "0+", default=0)
    want_fence: bool = field(BOOL, "0+", default=False)
    want_shut_down: bool = field(BOOL, "0+", default=False)
    offline_log_dirs: list[bytes] = field(array(UUID), "1+", factory=list, tag=0)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "2+", default=None, nullable="2+", tag=1)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    """The answer to `BrokerHeartbeatRequest`. Versions 0 to 2; flexible."""

    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+", default=0)
    is_caught_up: bool = field(BOOL, "0+", default=False)
    is_fenced: bool = field(BOOL, "0+", default=True)
    should_shut_down: bool = field(BOOL, "0+", default=False)
