"""Settings with which the nodes of a local cluster are secure. Keys are Apache Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.protocol.sasl.plain import LOGIN_MODULE as PLAIN_LOGIN_MODULE
from barnabas.protocol.sasl.scram_credentials import LOGIN_MODULE as SCRAM_LOGIN_MODULE
from barnabas.security.client_files import jaas
from barnabas.security.users import ADMIN, NODES

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SASL_PLAINTEXT_ABOVE, SASL_SSL_ABOVE, SSL_ABOVE, NODES_ABOVE = 10, 20, 30, 40
"""Ports of the other listeners above that of PLAINTEXT."""
LISTENERS = {
    "PLAINTEXT": 0,
    "SASL_PLAINTEXT": SASL_PLAINTEXT_ABOVE,
    "SASL_SSL": SASL_SSL_ABOVE,
    "SSL": SSL_ABOVE,
    "NODES": NODES_ABOVE,
}
"""Listeners of a broker, and their ports above that of PLAINTEXT."""
SASL_LISTENERS = ("sasl_plaintext", "sasl_ssl")
_NAME_OF_CERTIFICATE = "RULE:^CN=([^,]+).*$/$1/"


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """PEM files of one node."""

    for_clients: Path
    """Key and certificate for listeners of clients."""
    for_nodes: Path
    """Key and certificate with which it proves to other nodes that it is one."""
    clients_authority: Path
    nodes_authority: Path


def broker_settings(port: int, files: NodeFiles, passwords: Mapping[str, str]) -> dict[str, str]:
    """Settings of a broker whose PLAINTEXT listener has this port. `passwords`: for the mechanism PLAIN, by user."""
    listeners = ",".join(f"{name}://127.0.0.1:{port + above}" for name, above in LISTENERS.items())
    values = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "NODES",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.for_clients),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.clients_authority),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.principal.mapping.rules": _NAME_OF_CERTIFICATE,
    }
    for name in SASL_LISTENERS:
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            values[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = f"{SCRAM_LOGIN_MODULE} required;"
    return values | plain_users(passwords) | _between_nodes("nodes", files) | controller_settings(files)


def plain_users(passwords: Mapping[str, str]) -> dict[str, str]:
    """The users of PLAIN, with their passwords: also as dynamic configs of a broker that runs."""
    users = {f"user_{name}": password for name, password in passwords.items()}
    text = jaas(PLAIN_LOGIN_MODULE, **users)
    return {f"listener.name.{name}.plain.sasl.jaas.config": text for name in SASL_LISTENERS}


def controller_settings(files: NodeFiles) -> dict[str, str]:
    """Settings of the controllers' listener, and of connections to it: for both kinds of nodes."""
    return {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,NODES:SSL,CONTROLLER:SSL"
        ),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN};User:{NODES}",
        **_between_nodes("controller", files),
    }


def _between_nodes(listener: str, files: NodeFiles) -> dict[str, str]:
    """A listener that only nodes of the cluster may use: their certificates have an authority of their own."""
    own = f"listener.name.{listener}."
    return {
        f"{own}ssl.client.auth": "required",
        f"{own}ssl.keystore.type": "PEM",
        f"{own}ssl.keystore.location": str(files.for_nodes),
        f"{own}ssl.truststore.type": "PEM",
        f"{own}ssl.truststore.location": str(files.nodes_authority),
        f"{own}ssl.principal.mapping.rules": f"RULE:^.*$/{NODES}/",
    }
