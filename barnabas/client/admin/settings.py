"""Settings of an administrator: Kafka's names in snake_case, and Kafka's defaults."""

from __future__ import annotations

from pydantic import Field

from barnabas.client.settings import ClientOptions, ClientSettings


class AdminSettings(ClientSettings):
    """What an administrator can be told besides where the cluster is."""

    connections_max_idle_ms: int = 300_000
    default_api_timeout_ms: int = Field(60_000, ge=0)
    """So long every call tries, whatever errors worth another try it hears."""
    allow_auto_create_topics: bool = False
    """An administrator that only looks makes nothing: there is no such setting of it in Kafka."""


class AdminOptions(ClientOptions, total=False):
    """What `Admin` takes by name; what each means is said at `AdminSettings` and `ClientSettings`."""

    default_api_timeout_ms: int
