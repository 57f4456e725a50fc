"""Settings as altered while a broker runs (KIP-226): what was set for it, over what was set for all, over its
file.

Knows only how values combine; who has to hear of a change is the broker's.
"""

from __future__ import annotations

from typing import TypeVar

from settings.definitions import definitions
from settings.describe import BrokerLayers
from settings.errors import SettingsError
from settings.node import NodeSettings

Node = TypeVar("Node", bound=NodeSettings)

_COMPUTED = frozenset(["listeners", "listener_security_protocol_map", "max_connections_per_ip_overrides"])
"""Fields that are more than the value of one key; they are read once, at the start."""


def with_dynamic_configs(settings: Node, layers: BrokerLayers) -> tuple[Node, list[str]]:
    """The settings that now hold, and one line for each value that is passed over.

    A value that does not fit is passed over, as it may come from a newer controller. `raw` becomes all layers
    together, so that `topic_defaults` follows; `settings` must be what the file gave.
    """
    changes: dict[str, object] = {}
    passed_over: list[str] = []
    for name, text in {**layers.cluster_default, **layers.per_broker}.items():
        definition = definitions("broker").get(name)
        if definition is None or definition.update == "read-only" or definition.attribute in _COMPUTED:
            continue
        try:
            value = definition.parse(text)
        except SettingsError as error:
            passed_over.append(str(error))
            continue
        if definition.attribute in type(settings).model_fields and value is not None:
            changes[definition.attribute] = value
    fields = {name: getattr(settings, name) for name in type(settings).model_fields}
    return type(settings)(**{**fields, **changes, "raw": layers.merged()}), passed_over
