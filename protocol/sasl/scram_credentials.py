"""Core: SCRAM credentials (RFC 5802, RFC 7677): what a server keeps of a password.

Passwords are not normalized: as in Kafka, their bytes are those of UTF-8.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
SALT_BYTES = 24
"""A new salt has so many."""


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """A mechanism by its hash function."""

    name: str
    """`SCRAM-SHA-256`, as in SaslHandshake and in sasl.enabled.mechanisms."""
    type: int
    """In AlterUserScramCredentials and in UserScramCredentialRecord."""
    hash_name: str
    key_bytes: int

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)

SCRAM_MECHANISMS = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
SCRAM_MECHANISMS_BY_TYPE = {each.type: each for each in SCRAM_MECHANISMS.values()}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Enough to check a password by SCRAM, and not enough to authenticate with."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Hi() of the RFC. Takes a few milliseconds at the usual numbers of iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return mechanism.hmac(salted, b"Client Key")


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return mechanism.hmac(salted, b"Server Key")


def stored_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return mechanism.hash(client_key(mechanism, salted))


def credential_of_salted_password(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """AlterUserScramCredentials carries the salted password; a controller keeps this."""
    return ScramCredential(salt, stored_key(mechanism, salted), server_key(mechanism, salted), iterations)


def credential_of_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """`salt` must be random, and of this user alone."""
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    return credential_of_salted_password(mechanism, salted, salt, iterations)
