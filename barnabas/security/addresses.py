"""The listeners of a secure cluster, on one machine or in containers, and the names in certificates of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from barnabas.cluster.layout import Layout, Node

SASL_PLAINTEXT_ABOVE, SASL_SSL_ABOVE, SSL_ABOVE, NODES_ABOVE = 10, 20, 30, 40
"""Ports of the other listeners of a local broker above that of PLAINTEXT."""
PORTS_ABOVE = {
    "PLAINTEXT": 0,
    "SASL_PLAINTEXT": SASL_PLAINTEXT_ABOVE,
    "SASL_SSL": SASL_SSL_ABOVE,
    "SSL": SSL_ABOVE,
    "NODES": NODES_ABOVE,
}
"""Listeners of a local broker, and their ports above that of PLAINTEXT."""
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
INTERNAL_PORT, SASL_SSL_PORT, SSL_PORT, NODES_PORT = 9092, 19092, 19192, 9094
"""Ports of a broker in a container."""


def port_for_clients(layout: Layout, node: Node) -> int:
    """The port of a local node for clients: that of PLAINTEXT, or of SASL_SSL if the cluster is secure."""
    return node.port + SASL_SSL_ABOVE if layout.is_secure and node.is_broker else node.port


def port_for_nodes(layout: Layout, node: Node) -> int:
    """The port of a local node for other nodes."""
    return node.port + NODES_ABOVE if layout.is_secure and node.is_broker else node.port


@dataclass(frozen=True, slots=True)
class BrokerListener:
    """One listener of a broker."""

    name: str
    protocol: str
    address: str
    """`host:port` to listen on; an empty host means all interfaces."""
    advertised: str


class Addresses(Protocol):
    """The addresses of a cluster. Each broker has listeners SASL_SSL and SSL for clients, and NODES."""

    def listeners(self, broker: Node) -> tuple[BrokerListener, ...]: ...

    def host_names(self, node: Node) -> tuple[str, ...]:
        """The names and addresses by which a node is dialled."""


class LocalAddresses:
    """All nodes on this machine."""

    def listeners(self, broker: Node) -> tuple[BrokerListener, ...]:
        addresses = {name: f"127.0.0.1:{broker.port + above}" for name, above in PORTS_ABOVE.items()}
        return tuple(
            BrokerListener(name, "SSL" if name == "NODES" else name, address, address)
            for name, address in addresses.items()
        )

    def host_names(self, node: Node) -> tuple[str, ...]:
        return _LOCAL_NAMES


@dataclass(frozen=True, slots=True)
class ContainerAddresses:
    """A container for each node, called like it. SASL_SSL and SSL are for clients on the machine that runs the
    containers; INTERNAL is for those in other containers."""

    sasl_ssl_ports: Mapping[int, int]
    """Ports of that machine, by broker id."""
    ssl_ports: Mapping[int, int]

    def listeners(self, broker: Node) -> tuple[BrokerListener, ...]:
        name, sasl_ssl, ssl = broker.name, self.sasl_ssl_ports[broker.id], self.ssl_ports[broker.id]
        return (
            BrokerListener("INTERNAL", "SASL_SSL", f":{INTERNAL_PORT}", f"{name}:{INTERNAL_PORT}"),
            BrokerListener("SASL_SSL", "SASL_SSL", f":{SASL_SSL_PORT}", f"127.0.0.1:{sasl_ssl}"),
            BrokerListener("SSL", "SSL", f":{SSL_PORT}", f"127.0.0.1:{ssl}"),
            BrokerListener("NODES", "SSL", f":{NODES_PORT}", f"{name}:{NODES_PORT}"),
        )

    def host_names(self, node: Node) -> tuple[str, ...]:
        return (*_LOCAL_NAMES, node.name)
