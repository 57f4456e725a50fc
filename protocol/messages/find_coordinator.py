"""FindCoordinator (API key 10)."""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    """Find the coordinator of a group (0), a transactional id (1) or, from version 6 on, a share partition
    (2). Version 4: many keys at once (KIP-98, KIP-699, KIP-890, KIP-932). Versions 0 to 6; flexible from 3.
    """

    key: str = field(STRING, "0-3", default="")
    key_type: int = field(INT8, "1+", default=0)
    coordinator_keys: list[str] = field(array(STRING), "4+", factory=list)


class Coordinator(Struct):
    key: str = field(STRING, "4+", default="")
    node_id: int = field(INT32, "4+", default=0)
    host: str = field(STRING, "4+", default="")
    port: int = field(INT32, "4+", default=0)
    error_code: int = field(INT16, "4+", default=0)
    error_message: str | None = field(STRING, "4+", default="", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    """The answer to `FindCoordinatorRequest`. Versions 0 to 6; flexible from 3."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0-3", default=0)
    error_message: str | None = field(STRING, "1-3", default="", nullable="1-3", ignorable=True)
    node_id: int = field(INT32, "0-3", default=0)
    host: str = field(STRING, "0-3", default="")
    port: int = field(INT32, "0-3", default=0)
    coordinators: list[Coordinator] = field(array(Coordinator), "4+", factory=list)
