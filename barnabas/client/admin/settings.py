"""Settings of an administrator: Kafka's names in snake_case, and Kafka's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from pydantic import Field

from barnabas.client.settings import ClientSettings


class AdminSettings(ClientSettings):
    """What an administrator can be told besides where the cluster is."""

    connections_max_idle_ms: int = 300_000
    default_api_timeout_ms: int = Field(60_000, ge=0)
    """So long every call tries, whatever errors worth another try it hears."""
    allow_auto_create_topics: bool = False
    """An administrator that only looks makes nothing: there is no such setting of it in Kafka."""


class AdminOptions(TypedDict, total=False):
    """What `Admin` takes by name; what each means is said at `AdminSettings` and `ClientSettings`."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_dns_lookup: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    default_api_timeout_ms: int
