"""Core: the values that hold for one listener: `listener.name.<name>.<key>` takes precedence over `<key>`."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "listener.name."

JAAS_KEY = "sasl.jaas.config"
MECHANISMS_KEY = "sasl.enabled.mechanisms"
"""The keys of a listener's mechanisms and logins that may be altered while a node runs."""


def values_of_listener(raw: Mapping[str, str], listener_name: str) -> dict[str, str]:
    """Texts by key, as they hold for the listener: all values, with its own in place of those of the node.

    A mechanism has its own values, too (`listener.name.sasl_ssl.plain.sasl.jaas.config`): they stay in the result
    under `plain.sasl.jaas.config`.
    """
    own = f"{PREFIX}{listener_name.lower()}."
    values = {key: text for key, text in raw.items() if not key.startswith(PREFIX)}
    values |= {key.removeprefix(own): text for key, text in raw.items() if key.startswith(own)}
    return values
