"""TLS and SASL of the listeners of one node, and of its channels to other nodes."""

from __future__ import annotations

from barnabas.runtime.security import ChannelSecurity, ListenerSecurity
from barnabas.runtime.world import World
from barnabas.settings.listeners import Listener
from barnabas.settings.node import NodeSettings

PLAINTEXT = "PLAINTEXT"


class NodeSecurity:
    def __init__(self, settings: NodeSettings, world: World) -> None:
        self._settings = settings
        self._world = world

    def of_listener(self, listener: Listener) -> ListenerSecurity | None:
        """None for PLAINTEXT."""
        return None

    @property
    def between_brokers(self) -> ChannelSecurity | None:
        """Security of channels to other brokers; None: PLAINTEXT."""
        return None

    @property
    def to_controllers(self) -> ChannelSecurity | None:
        """Security of channels to controllers; None: PLAINTEXT."""
        return None
