"""Nodes of a simulation that talk to each other over TLS and SASL, behind an authorizer.

Their keys are no secret: the same certificate at each run keeps the length of every message, and so the times of a
seed.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.cluster.simulated import BROKER_PORT, CONTROLLER_PORT

FOLDER = Path(__file__).parent / "secure"
NODES_PORT = BROKER_PORT + 2
NODE = "node"
"""The principal of all nodes."""
_PASSWORD = "not-a-secret"


def secure_settings(name: str) -> dict[str, str]:
    """Settings of the node `broker-1` or `controller-101`."""
    key, _, certificate = (FOLDER / "node.pem").read_text().partition("-----BEGIN CERTIFICATE-----")
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{NODE}" password="{_PASSWORD}" user_{NODE}="{_PASSWORD}";'
    )
    values = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NODES:SASL_SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----" + certificate,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": (FOLDER / "authority.pem").read_text(),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": f"RULE:^.*$/{NODE}/",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.nodes.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{NODE}",
        "allow.everyone.if.no.acl.found": "true",
    }
    if name.startswith("broker"):
        values["listeners"] = f"PLAINTEXT://{name}:{BROKER_PORT},NODES://{name}:{NODES_PORT}"
        values["inter.broker.listener.name"] = "NODES"
    else:
        values["listeners"] = f"CONTROLLER://{name}:{CONTROLLER_PORT}"
    return values
