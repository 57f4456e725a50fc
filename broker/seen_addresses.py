"""Addresses of this broker as its clients see them: a listener can advertise the address that a connection came in by.

Clients in a container, on another host or on this machine then reach the broker without any `advertised.listeners`.
The broker knows no other address than that which reached it: it cannot know one that was mapped on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from barnabas.broker.metadata_cache import Node
from barnabas.runtime.request import Request

LocalAddress = Callable[[int], tuple[str, int] | None]
"""Host and port of this end of a connection, by its id; None if it is closed."""


@dataclass(frozen=True, slots=True)
class SeenAddresses:
    """Replaces this broker's advertised address in responses to some clients."""

    node_id: int
    listeners: frozenset[str]
    """Listeners that advertise as seen."""
    local_address: LocalAddress

    def of(self, node: Node, request: Request) -> Node:
        """The broker as the client of this request is to dial it."""
        if node.node_id != self.node_id or request.listener_name not in self.listeners:
            return node
        address = self.local_address(request.connection_id)
        return node if address is None else replace(node, host=address[0], port=address[1])
