"""Apache Kafka with a listener of each security protocol, users, certificates, ACLs and delegation tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from barnabas import Admin
from barnabas.client.admin import ScramMechanism, UserScramCredentialUpsertion
from tests.compat.apache import ApacheKafka
from tests.compat.client.certificates import Authority, Certified

PASSWORD = 'wonder=land; "11'
"""Has what a JAAS parser may stumble over."""
JAAS_PASSWORD = PASSWORD.replace('"', '\\"')
USER = "alice"
ADMIN = "admin"
"""A super user."""
PORTS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "MTLS", "NAMED", "REAUTH")
"""Listeners in the order of their ports. MTLS requires a certificate, NAMED has one of another host name, REAUTH ends
sessions after a second."""
_PROTOCOLS = {"MTLS": "SSL", "NAMED": "SSL", "REAUTH": "SASL_PLAINTEXT", "CONTROLLER": "PLAINTEXT"}


@dataclass(frozen=True)
class SecuredKafka:
    """The node, and what its clients need."""

    base_port: int
    authority: Authority
    client: Certified
    directory: Path

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.base_port + PORTS.index(listener)}"

    def trust(self) -> dict[str, str]:
        """Settings that trust the broker's certificate."""
        return {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": self.authority.pem}

    def options(self, listener: str, mechanism: str = "SCRAM-SHA-256", user: str = USER) -> dict[str, str]:
        """Settings of a client that gets in."""
        protocol = _PROTOCOLS.get(listener, listener)
        found = {"bootstrap_servers": self.bootstrap(listener), "security_protocol": protocol}
        if "SSL" in protocol:
            found |= self.trust()
        if protocol.startswith("SASL"):
            found |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": PASSWORD}
        return found


class OurNode(ApacheKafka):
    """Our node in place of Apache Kafka's."""

    def _command(self, config: Path) -> list[str]:
        return [sys.executable, "-m", "barnabas.cli.main", "node", str(config)]


@contextmanager
def secured_kafka(libs: Path | None, directory: Path, base_port: int) -> Iterator[SecuredKafka]:
    """One node for the length of the block, on `base_port` and the ports after it: Apache Kafka, or without `libs` a
    node of ours with the same file of settings."""
    authority = Authority()
    broker = authority.sign("broker", ("127.0.0.1", "localhost"))
    elsewhere = authority.sign("elsewhere", ("elsewhere.example",))
    settings = _settings(base_port, authority, broker, elsewhere, directory)
    controller_port = base_port + len(PORTS)
    kind = OurNode if libs is None else ApacheKafka
    node = kind(libs or directory, directory / "node", (base_port, controller_port), settings)
    node.start()
    try:
        trio.run(_add_users, f"127.0.0.1:{base_port}")
        yield SecuredKafka(base_port, authority, authority.sign("carol"), directory)
    finally:
        node.stop()


def _settings(
    base_port: int, authority: Authority, broker: Certified, elsewhere: Certified, directory: Path
) -> Mapping[str, str]:
    addresses = [f"{name}://127.0.0.1:{base_port + index}" for index, name in enumerate(PORTS)]
    controller = f"CONTROLLER://127.0.0.1:{base_port + len(PORTS)}"
    protocols = [f"{name}:{_PROTOCOLS.get(name, name)}" for name in (*PORTS, "CONTROLLER")]
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    plain = f'{module} user_{USER}="{JAAS_PASSWORD}" user_{ADMIN}="{JAAS_PASSWORD}";'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    directory.mkdir(parents=True, exist_ok=True)
    keystore = broker.write_pem(directory / "broker.pem")
    other_keystore = elsewhere.write_pem(directory / "elsewhere.pem")
    truststore = directory / "authority.pem"
    truststore.write_text(authority.pem)
    settings = {
        "listeners": ",".join([*addresses, controller]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(protocols),
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "allow.everyone.if.no.acl.found": "true",
        "delegation.token.secret.key": "a secret of the cluster",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(truststore),
        "ssl.client.auth": "none",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.named.ssl.keystore.location": str(other_keystore),
        "listener.name.named.ssl.keystore.type": "PEM",
    }
    for listener in ("sasl_plaintext", "sasl_ssl", "reauth"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
    for mechanism in ("plain", "scram-sha-256", "scram-sha-512"):
        settings[f"listener.name.reauth.{mechanism}.connections.max.reauth.ms"] = "1000"
    return settings


async def _add_users(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        # One call for each mechanism: Kafka refuses two alterations of one user in a request.
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            await admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, mechanism, PASSWORD) for user in (USER, ADMIN)]
            )
