"""Settings with which nodes are secure. Keys are Apache Kafka's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from barnabas.protocol.sasl.plain import LOGIN_MODULE as PLAIN_LOGIN_MODULE
from barnabas.protocol.sasl.scram_credentials import LOGIN_MODULE as SCRAM_LOGIN_MODULE
from barnabas.security.addresses import BrokerListener
from barnabas.security.client_files import jaas
from barnabas.security.users import ADMIN, NODES

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PROTOCOL_MAP = "listener.security.protocol.map"
_BETWEEN_NODES = "NODES"
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


def broker_settings(
    listeners: Sequence[BrokerListener], files: NodeFiles, passwords: Mapping[str, str]
) -> dict[str, str]:
    """Settings of a broker. `passwords`: for the mechanism PLAIN, by user."""
    values = {
        "listeners": ",".join(f"{it.name}://{it.address}" for it in listeners),
        "advertised.listeners": ",".join(f"{it.name}://{it.advertised}" for it in listeners),
        "inter.broker.listener.name": _BETWEEN_NODES,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.for_clients),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.clients_authority),
    }
    for listener in listeners:
        own = f"listener.name.{listener.name.lower()}."
        if listener.protocol == "SSL" and listener.name != _BETWEEN_NODES:
            values[f"{own}ssl.client.auth"] = "required"
            values[f"{own}ssl.principal.mapping.rules"] = _NAME_OF_CERTIFICATE
        if listener.protocol.startswith("SASL"):
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                values[f"{own}{mechanism}.sasl.jaas.config"] = f"{SCRAM_LOGIN_MODULE} required;"
    protocols = {it.name: it.protocol for it in listeners}
    return (
        values
        | plain_users(listeners, passwords)
        | _between_nodes(_BETWEEN_NODES.lower(), files)
        | controller_settings(files)
        | {PROTOCOL_MAP: _protocol_map(protocols | {"CONTROLLER": "SSL"})}
    )


def plain_users(listeners: Sequence[BrokerListener], passwords: Mapping[str, str]) -> dict[str, str]:
    """The users of PLAIN, with their passwords: also as dynamic configs of a broker that runs."""
    text = jaas(PLAIN_LOGIN_MODULE, **{f"user_{name}": password for name, password in passwords.items()})
    names = [it.name.lower() for it in listeners if it.protocol.startswith("SASL")]
    return {f"listener.name.{name}.plain.sasl.jaas.config": text for name in names}


def controller_settings(files: NodeFiles) -> dict[str, str]:
    """Settings of the controllers' listener, and of connections to it: for both kinds of nodes."""
    return {
        PROTOCOL_MAP: _protocol_map({"CONTROLLER": "SSL"}),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN};User:{NODES}",
        **_between_nodes("controller", files),
    }


def _protocol_map(protocols: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())


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
