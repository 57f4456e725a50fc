"""The settings of an administrator are Kafka's, with Kafka's defaults."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from barnabas.client.admin import AdminOptions, AdminSettings
from barnabas.client.security_names import SecurityOptions

pytestmark = pytest.mark.feature("CL-04")

OF_KAFKA: dict[str, tuple[str, object]] = {
    "bootstrap.servers": ("list", None),
    "client.dns.lookup": ("string", "use_all_dns_ips"),
    "client.id": ("string", ""),
    "connections.max.idle.ms": ("long", 300_000),
    "default.api.timeout.ms": ("int", 60_000),
    "enable.metrics.push": ("boolean", False),
    "metadata.max.age.ms": ("long", 300_000),
    "metadata.recovery.rebootstrap.trigger.ms": ("long", 300_000),
    "metadata.recovery.strategy": ("string", "rebootstrap"),
    "reconnect.backoff.max.ms": ("long", 1_000),
    "reconnect.backoff.ms": ("long", 50),
    "request.timeout.ms": ("int", 30_000),
    "retry.backoff.max.ms": ("long", 1_000),
    "retry.backoff.ms": ("long", 100),
    "socket.connection.setup.timeout.max.ms": ("long", 30_000),
    "socket.connection.setup.timeout.ms": ("long", 10_000),
}
OURS = {"client_id": "barnabas"}
"""Settings whose default is not Kafka's: brokers' logs should name the client."""


def test_options_are_kafkas() -> None:
    options = get_type_hints(AdminOptions)
    assert {name.replace(".", "_") for name in OF_KAFKA} == set(options) - set(get_type_hints(SecurityOptions))
    for name, (kind, _) in OF_KAFKA.items():
        if kind in ("int", "long"):
            assert options[name.replace(".", "_")] is int


def test_defaults_are_kafkas() -> None:
    settings = AdminSettings.of({"bootstrap_servers": "a:1,b"})
    assert settings.addresses == [("a", 1), ("b", 9092)]
    for name, (_, default) in OF_KAFKA.items():
        attribute = name.replace(".", "_")
        if default is not None:
            assert getattr(settings, attribute) == OURS.get(attribute, default), name
