"""The keys of brokers that share a host: its name, and the addresses on which all of them listen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.settings.errors import SettingsError
from barnabas.settings.listeners import Listener, parse_listeners

HOST = "barnabas.host"
"""A key that Kafka does not have: the name of the host that this broker shares with others."""
SHARED_LISTENERS = "barnabas.shared.listeners"
"""A key that Kafka does not have: addresses that brokers of one host listen on together."""
KEYS_OF_HOSTS = frozenset({HOST, SHARED_LISTENERS})
MOST_HOST_BYTES = 255


def host_fields(raw: Mapping[str, str], protocols: Mapping[str, str], names: Sequence[str]) -> dict[str, Any]:
    """The fields of `BrokerSettings` for these keys. `names`: of the broker's listeners. Raises `SettingsError`."""
    host = raw.get(HOST, "").strip()
    if len(host.encode()) > MOST_HOST_BYTES:
        raise SettingsError("too long", HOST, host, f"at most {MOST_HOST_BYTES} bytes of UTF-8")
    texts = [each.strip() for each in raw.get(SHARED_LISTENERS, "").split(",") if each.strip()]
    return {"host": host or None, "shared_listeners": _shared(texts, protocols, names)}


def _shared(texts: Sequence[str], protocols: Mapping[str, str], names: Sequence[str]) -> list[Listener]:
    shared = parse_listeners(SHARED_LISTENERS, texts, protocols)
    for listener in shared:
        if listener.name not in names:
            raise SettingsError("not the name of a listener", SHARED_LISTENERS, listener.name, ", ".join(names))
        if not listener.port:
            raise SettingsError("not a port that brokers can share", SHARED_LISTENERS, str(listener), "1 to 65535")
    return shared
