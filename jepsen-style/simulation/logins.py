"""A listener of simulated secure brokers where clients log in, as an administrator or as users of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.security_names import SecurityOptions
from barnabas.cluster.simulated import BROKER_PORT

LOGINS_PORT = BROKER_PORT + 4
ADMINISTRATOR = "administrator"
"""A super user."""
_PASSWORD = "not-a-secret"
LOGIN: SecurityOptions = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": ADMINISTRATOR,
    "sasl_plain_password": _PASSWORD,
}
"""Settings of an administrator's client."""


def with_logins(settings: Mapping[str, str], name: str) -> dict[str, str]:
    """Settings of the secure node `broker-1` or `controller-101`, and the listener if it is a broker."""
    values = dict(settings)
    values["super.users"] += f";User:{ADMINISTRATOR}"
    if not name.startswith("broker"):
        return values
    module = "org.apache.kafka.common.security"
    values["listener.security.protocol.map"] += ",LOGINS:SASL_PLAINTEXT"
    values["listeners"] += f",LOGINS://{name}:{LOGINS_PORT}"
    values["listener.name.logins.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
    values["listener.name.logins.plain.sasl.jaas.config"] = (
        f'{module}.plain.PlainLoginModule required user_{ADMINISTRATOR}="{_PASSWORD}";'
    )
    values["listener.name.logins.scram-sha-256.sasl.jaas.config"] = f"{module}.scram.ScramLoginModule required;"
    return values
