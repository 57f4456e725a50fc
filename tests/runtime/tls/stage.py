"""Authorities, certificates and options for stories over TLS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from barnabas.runtime.server import Request, ResponseSlot, Server, ServerLimits
from barnabas.runtime.tls.channel import TlsChannelSecurity
from barnabas.runtime.tls.listener import TlsListenerSecurity
from barnabas.runtime.tls.options import TlsOptions
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import World
from barnabas.security.certificates import Certificate, Purpose, make_authority, make_certificate, make_key

LONG_AGO_MS = 946_684_800_000
"""The year 2000. OpenSSL asks the machine for the time, also in a simulation, where nodes believe in another one."""

DAYS = 36_500
HOSTS = ("server", "localhost", "127.0.0.1")


@cache
def spare_key(number: int = 0) -> RSAPrivateKey:
    """Keys take long to make, so stories share some."""
    return make_key()


@cache
def authority(name: str = "authority") -> Certificate:
    return make_authority(name, LONG_AGO_MS, days=DAYS, key=spare_key(1))


@cache
def certificate(
    subject: str = "broker", names: Sequence[str] = HOSTS, signer: str = "authority", key: int = 0
) -> Certificate:
    return make_certificate(
        authority(signer), subject, LONG_AGO_MS, names=names, purpose=Purpose(days=DAYS), key=spare_key(key)
    )


def expired_certificate() -> Certificate:
    """One that has expired yesterday."""
    two_days_ago_ms = int(time.time() * 1000) - 2 * 86_400_000
    purpose = Purpose(days=1)
    return make_certificate(authority(), "broker", two_days_ago_ms, names=HOSTS, purpose=purpose, key=spare_key())


def values(own: Certificate | None = None, trusted: Certificate | None = None, **others: str) -> dict[str, str]:
    """Options by Kafka's keys, with the stores in them; `ssl_client_auth` stands for `ssl.client.auth`."""
    texts = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    if own is not None:
        texts["ssl.keystore.key"] = own.key_pem.decode()
        texts["ssl.keystore.certificate.chain"] = own.chain_pem.decode()
    if trusted is not None:
        texts["ssl.truststore.certificates"] = trusted.certificate_pem.decode()
    return texts | {key.replace("_", "."): text for key, text in others.items()}


def server_security(world: World, own: Certificate | None = None, **others: str) -> TlsListenerSecurity:
    texts = values(own or certificate(), authority(), **others)
    return TlsListenerSecurity(TlsHolder(TlsOptions.of(texts), world, server=True, name="listener SSL"))


def client_security(
    world: World, own: Certificate | None = None, trusted: Certificate | None = None, **others: str
) -> TlsChannelSecurity:
    texts = values(own, trusted or authority(), **others)
    return TlsChannelSecurity(TlsHolder(TlsOptions.of(texts), world, client=True, name="channels"))


@dataclass
class Desk:
    """Answers each request with its body, and keeps the principals."""

    principals: list[str] = field(default_factory=list)

    def __call__(self, request: Request, slot: ResponseSlot) -> None:
        self.principals.append(str(request.principal))
        slot.fill([request.correlation_id.to_bytes(4, "big"), bytes(request.body)])


def make_server(world: World, desk: Desk) -> Server:
    return Server(world, desk, ServerLimits())
