"""How long a client waits for what: settings of connections and metadata, and waits that grow.

Names and defaults are Kafka's. Knows no clock: whoever waits does so himself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How patient a client is, in milliseconds."""

    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    """After a dial that failed, or a connection that was lost, its node is left alone for so long."""
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    """Negative: for ever."""
    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int | None = None
    """A topic that nobody used for so long is not asked about any more; None: all topics are, always."""
    metadata_recovery_strategy: str = "rebootstrap"
    """`none`: once brokers are known, the bootstrap servers are never asked again (KIP-899)."""
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    allow_auto_create_topics: bool = False
