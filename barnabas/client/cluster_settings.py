"""Settings of a client's connections and metadata. Names and defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Times in milliseconds."""

    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    """Time without a dial after a failed dial or a lost connection; it doubles with each failure in a row."""
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    """Negative: connections are never closed as idle."""
    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int | None = None
    """Topics that were not used for this long are no longer refreshed; None: all topics are, always."""
    metadata_recovery_strategy: str = "rebootstrap"
    """`none`: once brokers are known, the bootstrap servers are not used again (KIP-899)."""
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    allow_auto_create_topics: bool = False
