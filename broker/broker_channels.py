"""Channels to other brokers over their inter-broker listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.runtime.channel import Channel
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World

if TYPE_CHECKING:
    from barnabas.broker.metadata_cache import Node
    from barnabas.settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class BrokerChannels:
    """Opens a channel for each purpose: fetches, transactions, look-ups."""

    world: World
    metadata: MetadataCache
    settings: Callable[[], BrokerSettings]
    security: ChannelSecurity | None

    def node(self, broker_id: int) -> Node | None:
        """Address of a registered broker, alive or not; None if it is unknown."""
        return self.metadata.node(broker_id, self.settings().inter_broker_listener_name)

    def alive_node(self, broker_id: int) -> Node | None:
        """Address of a broker that is not fenced."""
        return self.metadata.alive_nodes(self.settings().inter_broker_listener_name).get(broker_id)

    def open(self, node: Node, nursery: trio.Nursery, purpose: str) -> Channel:
        """A new channel; `purpose` is part of its client id."""
        client_id = f"broker-{self.settings().node_id}-{purpose}-{node.node_id}"
        return Channel(self.world, nursery, node.host, node.port, client_id=client_id, security=self.security)
