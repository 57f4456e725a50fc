"""Public keys of an OAuth provider (RFC 7517), and signatures by them. Uses PyJWT for the cryptography."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jwt.algorithms import Algorithm, get_default_algorithms
from jwt.exceptions import PyJWTError

from barnabas.protocol.sasl.jwt_claims import Jwt, json_object

MOST_KEYS = 500

_BY_CURVE = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",), "Ed25519": ("EdDSA",), "Ed448": ("EdDSA",)}
_BY_TYPE = {"RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")}
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_LEAST_RSA_BITS = 2048
_MOST_RSA_BITS = 8192
"""A larger key makes each login slow."""

_ALGORITHMS: dict[str, Algorithm] = {
    name: algorithm
    for name, algorithm in get_default_algorithms().items()
    if any(name in names for names in (*_BY_CURVE.values(), *_BY_TYPE.values()))
}
"""Algorithms with a public key. `none` and those with a shared secret (HMAC) are not among them."""


def is_asymmetric(algorithm: str) -> bool:
    """True for algorithms that verify by a public key."""
    return algorithm in _ALGORITHMS


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One public key."""

    key_id: str | None
    algorithms: frozenset[str]
    """Signatures that it may be used for: by its type, and by its `alg` if it has one."""
    key: Any = field(repr=False)

    def verifies(self, token: Jwt) -> bool:
        if token.algorithm not in self.algorithms:
            return False
        try:
            return _ALGORITHMS[token.algorithm].verify(token.signed, self.key, token.signature)
        except (PyJWTError, ValueError):
            return False


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of one provider at one time."""

    keys: tuple[VerificationKey, ...] = ()

    @property
    def ids(self) -> list[str | None]:
        return [key.key_id for key in self.keys]

    def find(self, token: Jwt) -> VerificationKey | None:
        """The first key that fits the token's `kid`, if it has one, and its `alg`."""
        for key in self.keys:
            if token.key_id in (None, key.key_id) and token.algorithm in key.algorithms:
                return key
        return None

    @classmethod
    def parse(cls, document: bytes) -> KeySet:
        """Parse a JWKS. Keys of other types and uses are left out. Raises ValueError in one line if no key is left."""
        keys = json_object(document).get("keys")
        if not isinstance(keys, list):
            raise ValueError("no list of 'keys'")
        if len(keys) > MOST_KEYS:
            raise ValueError(f"{len(keys)} keys; allowed: up to {MOST_KEYS}")
        usable = tuple(key for each in keys if isinstance(each, dict) for key in [_key(each)] if key is not None)
        if not usable:
            raise ValueError("no public key for signatures")
        return cls(usable)


def _key(members: Mapping[str, Any]) -> VerificationKey | None:
    key_type, curve = members.get("kty"), members.get("crv")
    names: tuple[str, ...] = _BY_TYPE["RSA"] if key_type == "RSA" else _BY_CURVE.get(str(curve), ())
    if key_type not in ("RSA", "EC", "OKP") or members.get("use", "sig") != "sig":
        return None
    if "alg" in members:
        names = tuple(name for name in names if name == members["alg"])
    if not names:
        return None
    public = {name: value for name, value in members.items() if name not in _PRIVATE}
    try:
        key = _ALGORITHMS[names[0]].from_jwk(public)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if key_type == "RSA" and not _LEAST_RSA_BITS <= key.key_size <= _MOST_RSA_BITS:
        return None
    key_id = members.get("kid")
    return VerificationKey(key_id if isinstance(key_id, str) else None, frozenset(names), key)
