"""Settings of an administrator: Kafka's names in snake_case, Kafka's defaults."""

from __future__ import annotations

from pydantic import Field

from barnabas.client.settings import ClientOptions, ClientSettings


class AdminSettings(ClientSettings):
    """The settings of one administrator."""

    connections_max_idle_ms: int = 300_000
    enable_metrics_push: bool = False
    default_api_timeout_ms: int = Field(60_000, ge=0)
    """Time limit of a call with all of its retries."""
    allow_auto_create_topics: bool = False
    """Always False: describing a topic must not create it. Kafka has no such setting for administrators."""


class AdminOptions(ClientOptions, total=False):
    """Keyword arguments of `Admin`; `AdminSettings` and `ClientSettings` have their meanings."""

    default_api_timeout_ms: int
