"""Core: `max.connections.per.ip.overrides`."""

from __future__ import annotations

from barnabas.settings.errors import SettingsError

CONNECTION_OVERRIDES_KEY = "max.connections.per.ip.overrides"


def connection_overrides(text: str) -> dict[str, int]:
    """Parse `host:count,…`. Raises SettingsError."""
    limits: dict[str, int] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        host, colon, count = pair.rpartition(":")
        if not colon or not host or not count.isascii() or not count.isdigit():
            raise SettingsError("not an address with its limit", CONNECTION_OVERRIDES_KEY, pair, "host:count")
        limits[host.strip("[]")] = int(count)
    return limits
