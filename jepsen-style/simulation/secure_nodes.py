"""Nodes of a simulation that talk to each other over TLS and SASL, behind an authorizer.

Their keys, in `simulation.node_certificates`, are no secret.
"""

from __future__ import annotations

from barnabas.cluster.simulated import BROKER_PORT, CONTROLLER_PORT
from simulation.node_certificates import FILE_SETTINGS

NODES_PORT = BROKER_PORT + 2
NODE = "node"
"""The principal of all nodes."""
_PASSWORD = "not-a-secret"


def secure_settings(name: str) -> dict[str, str]:
    """Settings of the node `broker-1` or `controller-101`."""
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{NODE}" password="{_PASSWORD}" user_{NODE}="{_PASSWORD}";'
    )
    values = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NODES:SASL_SSL,CONTROLLER:SSL",
        **FILE_SETTINGS,
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
