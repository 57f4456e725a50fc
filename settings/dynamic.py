"""Settings that are altered while a broker runs (KIP-226): values for this broker over values for all over its file.

Only combines values; the broker notifies its parts of a change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from barnabas.settings.connection_overrides import CONNECTION_OVERRIDES_KEY, connection_overrides
from barnabas.settings.definitions import definitions
from barnabas.settings.describe import BrokerLayers
from barnabas.settings.errors import SettingsError
from barnabas.settings.node import NodeSettings, field_names

Node = TypeVar("Node", bound=NodeSettings)

_COMPUTED = frozenset(["listeners", "listener_security_protocol_map"])
"""Fields that are made of more than the value of one key; they are read once, at the start."""


def with_dynamic_configs(settings: Node, layers: BrokerLayers) -> tuple[Node, list[str]]:
    """The settings in effect, and one line for each value that is ignored.

    A value that is not allowed is ignored, as it may come from a newer controller. `raw` becomes all layers together,
    so that `topic_defaults` follows; `settings` must be those of the file.
    """
    changes: dict[str, Any] = {}
    ignored: list[str] = []
    for name, text in {**layers.cluster_default, **layers.per_broker}.items():
        definition = definitions("broker").get(name)
        if definition is None or definition.update == "read-only" or definition.attribute in _COMPUTED:
            continue
        try:
            value = connection_overrides(text) if name == CONNECTION_OVERRIDES_KEY else definition.parse(text)
        except SettingsError as error:
            ignored.append(str(error))
            continue
        if definition.attribute in field_names(type(settings)) and value is not None:
            changes[definition.attribute] = value
    return replace(settings, **{**changes, "raw": layers.merged()}), ignored
