"""Settings that all clients share, and how keyword arguments become settings.

Names are Kafka's in snake_case, defaults are Kafka's; an unknown setting or an invalid value is an error of one line.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, field_validator

from barnabas.client.security_names import SecurityOptions
from barnabas.client.security_settings import SecuritySettings

DEFAULT_PORT = 9092


class ClientSettings(SecuritySettings):
    """Settings of producers, consumers and administrators alike."""

    bootstrap_servers: tuple[str, ...]
    """`host:port`, as one comma-separated string or a sequence; every address of a host name is tried."""
    client_id: str = "barnabas"
    client_rack: str = ""
    client_dns_lookup: str = Field(
        "use_all_dns_ips", pattern="^(use_all_dns_ips|resolve_canonical_bootstrap_servers_only)$"
    )
    request_timeout_ms: int = Field(30_000, ge=0)
    retry_backoff_ms: int = Field(100, ge=0)
    retry_backoff_max_ms: int = Field(1_000, ge=0)
    reconnect_backoff_ms: int = Field(50, ge=0)
    reconnect_backoff_max_ms: int = Field(1_000, ge=0)
    socket_connection_setup_timeout_ms: int = Field(10_000, gt=0)
    socket_connection_setup_timeout_max_ms: int = Field(30_000, gt=0)
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = Field(300_000, ge=0)
    metadata_recovery_strategy: str = Field("rebootstrap", pattern="^(rebootstrap|none)$")
    metadata_recovery_rebootstrap_trigger_ms: int = Field(300_000, ge=0)
    allow_auto_create_topics: bool = True
    enable_metrics_push: bool = True
    """Push metrics to brokers that ask for them (KIP-714). Nothing is sent to brokers that do not offer it."""

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Sequence):
            return parts
        addresses = tuple(part.strip() for part in parts if isinstance(part, str) and part.strip())
        for address in addresses:
            parse_address(address)
        if not addresses:
            raise ValueError("must have at least one host:port; got none")
        return addresses

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(host, port) of each of the bootstrap servers."""
        return [parse_address(address) for address in self.bootstrap_servers]


class ClientOptions(SecurityOptions, total=False):
    """Keyword arguments of every client; `ClientSettings` has their meanings."""

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
    enable_metrics_push: bool


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `host` or `[v6]:port`. ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isdecimal() or not 0 < int(port) < 65_536 or not host.strip("[]"):
        raise ValueError(f"must be host:port; got {text!r}")
    return host.strip("[]"), int(port)
