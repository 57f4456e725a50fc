"""Core: SCRAM credentials, the form in which a cluster keeps passwords (RFC 5802, KIP-84)."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
SALT_BYTES = 24


class ScramMechanism(IntEnum):
    """Codes of requests and of records."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN

    @property
    def hash_name(self) -> str:
        return {1: "sha256", 2: "sha512"}[self]

    @property
    def sasl_name(self) -> str:
        """As in SaslHandshake: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Proof of a password, without the password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Milliseconds of work: not for the event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    name = mechanism.hash_name
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)
