"""Core: limits on the peers of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.settings.listener_values import PREFIX

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
    """New connections per second; others wait."""
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    """`max_connections` of single listeners, by name."""
    listener_max_creation_rates: Mapping[str, int] = field(default_factory=dict)
    """`max_connection_creation_rate` of single listeners."""
    inter_broker_listener_name: str = ""
    quota_window_num: int = 11
    quota_window_ms: int = 1_000

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

    def max_connections_of(self, listener: str) -> int:
        """The most connections of one listener."""
        return self.listener_max_connections.get(listener, self.max_connections)

    def max_creation_rate_of(self, listener: str) -> int:
        """The most new connections per second of one listener."""
        return self.listener_max_creation_rates.get(listener, self.max_connection_creation_rate)

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
            listener_max_connections=_of_listeners(settings, "max.connections"),
            listener_max_creation_rates=_of_listeners(settings, "max.connection.creation.rate"),
            inter_broker_listener_name=getattr(settings, "inter_broker_listener_name", ""),
            quota_window_num=settings.quota_window_num,
            quota_window_ms=settings.quota_window_size_seconds * 1000,
            memory_limit_bytes=memory_bytes // len(settings.process_roles),
            queued_max_request_bytes=settings.queued_max_request_bytes,
        )


def _of_listeners(settings: NodeSettings, key: str) -> dict[str, int]:
    """`listener.name.<name>.<key>` of each listener that has it. A value that is no positive number is ignored."""
    found = {}
    for listener in settings.listeners:
        text = settings.raw.get(f"{PREFIX}{listener.name.lower()}.{key}", "").strip()
        if text.isdecimal() and int(text) > 0:
            found[listener.name] = int(text)
    return found
