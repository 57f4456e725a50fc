"""Core: client configurations for a user of a secure cluster: Java, librdkafka, kcat, Python."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.sasl.plain import LOGIN_MODULE as PLAIN_LOGIN_MODULE
from barnabas.protocol.sasl.plain import PLAIN
from barnabas.protocol.sasl.scram_credentials import LOGIN_MODULE

MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Access:
    """Servers, password and authority of a user that connects by SASL_SSL."""

    bootstrap_servers: str
    user: str
    password: str
    authority_file: str
    """PEM file with the certificate of the cluster's authority."""


def jaas(module: str, **options: str) -> str:
    """One line of a JAAS configuration."""
    quoted = " ".join(f'{name}="{_escaped(value)}"' for name, value in options.items())
    return f"{module} required {quoted};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def java(access: Access, mechanism: str = MECHANISM) -> dict[str, str]:
    """Keys of Java clients and of Kafka's tools (`--command-config`), and of `barnabas` (`--client-config`).
    `mechanism` may be PLAIN."""
    module = PLAIN_LOGIN_MODULE if mechanism == PLAIN else LOGIN_MODULE
    return {
        "bootstrap.servers": access.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(module, username=access.user, password=access.password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": access.authority_file,
    }


def java_with_certificate(bootstrap_servers: str, authority_file: str, key_file: str) -> dict[str, str]:
    """The same for a client that authenticates by a certificate (listener SSL)."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_file,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority_file,
    }


def librdkafka(access: Access) -> str:
    """`name=value` lines for librdkafka and the clients that are built on it; kcat reads them with `-F`."""
    values = {
        "bootstrap.servers": access.bootstrap_servers,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": MECHANISM,
        "sasl.username": access.user,
        "sasl.password": access.password,
        "ssl.ca.location": access.authority_file,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def ours(access: Access) -> dict[str, str]:
    """Keyword arguments of our client."""
    return {
        "bootstrap_servers": access.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": access.user,
        "sasl_plain_password": access.password,
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": access.authority_file,
    }


def python(access: Access) -> str:
    """A program with our client that writes one record and reads it back."""
    settings = "".join(f"    {name}={value!r},\n" for name, value in ours(access).items())
    return f'''"""Writes a record to the cluster as {access.user}, and reads it back."""

from barnabas.sync import Consumer, Producer

SECURITY = dict(
{settings})
TOPIC = "{access.user}-first"

with Producer(**SECURITY) as producer:
    print(producer.send(TOPIC, b"hello"))
with Consumer(TOPIC, group_id="{access.user}-first", auto_offset_reset="earliest", **SECURITY) as consumer:
    print(next(iter(consumer)).value)
'''
