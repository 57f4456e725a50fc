"""Certificates and users of a secure development node: those that `cluster up --secure` makes, for one node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from barnabas.cluster.layout import Layout, Node
from barnabas.dev.options import NODE_ID, NODE_NAME, DevPorts
from barnabas.protocol.sasl.scram_credentials import SCRAM_MECHANISMS
from barnabas.security.local_security import LocalSecurity


@dataclass(frozen=True, slots=True)
class DevSecurity:
    """Settings and first users of a secure node, and where its clients connect."""

    settings: dict[str, str]
    first_users: list[str]
    """Credentials as `kafka-storage format --add-scram` takes them."""
    bootstrap_servers: str


def certificate_settings(directory: Path) -> dict[str, str]:
    """The node's certificate towards clients, and their authority, as `ssl.*` settings."""
    files = LocalSecurity.of(directory).files_of(Node(NODE_NAME, "broker", NODE_ID, 0))
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.for_clients),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.clients_authority),
    }


def make_security(directory: Path, ports: DevPorts) -> DevSecurity:
    """Make what is missing below `directory/security`. Raises `ClusterError`."""
    node = Node(NODE_NAME, "broker", NODE_ID, ports.clients)
    layout = Layout(directory, "", ports.clients, (node,), is_secure=True)
    security = LocalSecurity.of(directory)
    security.ensure(layout)
    users = [
        f"{mechanism}=[name={name},password={password}]"
        for name, password in security.users.read().items()
        for mechanism in SCRAM_MECHANISMS
    ]
    return DevSecurity(security.settings_of(node), users, security.bootstrap_servers(layout, "SASL_SSL"))
