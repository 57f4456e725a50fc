"""Settings of a broker for tests of its parts."""

from __future__ import annotations

from typing import Any

from barnabas.settings.broker import BrokerSettings


def some_settings(**values: Any) -> BrokerSettings:
    """Kafka's defaults but for `values`; there is no listener."""
    needed = {"node_id": 1, "process_roles": ["broker"], "listeners": [], "controller_listener_names": ["CONTROLLER"]}
    return BrokerSettings(**{**needed, **values})
