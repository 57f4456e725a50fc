"""Limits on the peers of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.settings.node import NodeSettings

NO_LIMIT = 2**31 - 1

MAX_DEFAULT_MEMORY_BYTES = 1 << 30
"""The default memory limit of a node is a quarter of the machine's memory, but at most this."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of one server. Fields of the first group have the names of Kafka's keys."""

    socket_request_max_bytes: int = 104_857_600
    connections_max_idle_ms: int = 600_000
    max_connections: int = NO_LIMIT
    """At this number of connections the server accepts no other until one ends."""
    max_connections_per_ip: int = NO_LIMIT
    """Further connections of the address are closed at once."""
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = NO_LIMIT
    """New connections per second; others wait in the backlog."""

    max_pending_requests: int = 64
    """Unanswered requests of one connection. At this number the server stops reading from it."""
    max_pending_request_bytes: int = 64 * 1024 * 1024
    """Bytes of unanswered requests of one connection. Above, the server stops reading from it; one request of any
    allowed size is always read."""
    max_unsent_bytes: int = 16 * 1024 * 1024
    """Bytes of answers that the peer has not taken. Above, the server stops reading from the connection."""
    memory_limit_bytes: int = 1 << 30
    """Memory that clients may make the node use; `runtime.memory` divides it."""
    queued_max_request_bytes: int = -1
    """Unanswered requests of all connections; -1: a part of the memory limit."""

    @classmethod
    def of(cls, settings: NodeSettings, machine_memory_bytes: int) -> ServerLimits:
        """Each role of a combined node has a server with half of the memory."""
        memory_bytes = settings.memory_limit_bytes or min(MAX_DEFAULT_MEMORY_BYTES, machine_memory_bytes // 4)
        return cls(
            socket_request_max_bytes=settings.socket_request_max_bytes,
            connections_max_idle_ms=settings.connections_max_idle_ms,
            max_connections=settings.max_connections,
            max_connections_per_ip=settings.max_connections_per_ip,
            max_connections_per_ip_overrides=settings.max_connections_per_ip_overrides,
            max_connection_creation_rate=settings.max_connection_creation_rate,
            memory_limit_bytes=memory_bytes // len(settings.process_roles),
            queued_max_request_bytes=settings.queued_max_request_bytes,
        )
