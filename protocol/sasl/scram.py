"""Core: SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides of an exchange.

A server never shows that it does not know a user: it goes on with a credential that no password fits, and refuses the
proof. Channels are not bound, so there is no mechanism with -PLUS.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from barnabas.protocol.sasl import scram_messages as messages
from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused
from barnabas.protocol.sasl.scram_credentials import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    client_key,
    salted_password,
    server_key,
)

T = TypeVar("T")

NONCE_BYTES = 18
"""24 characters in Base64. Kafka's nonces have 130 bits."""

SALT_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
SALT_BITS = 130
"""Salts of Kafka's tools are numbers of so many bits, written with 36 digits."""

MAX_CLIENT_ITERATIONS = 65_536
"""A client does no more work than this (some 40 ms) for a server that it does not know yet. Kafka allows 16384."""


@dataclass(frozen=True, slots=True)
class ScramIdentity:
    """A user, or a delegation token, that may authenticate."""

    credential: ScramCredential = field(repr=False)
    result: Authenticated


Identify = Callable[[str, bool], ScramIdentity | None]
"""The identity for a name; with True the name is the id of a delegation token."""


class ScramServer:
    """The server's side."""

    def __init__(self, mechanism: ScramMechanism, identify: Identify, secret: bytes, nonce: bytes) -> None:
        """Credentials of unknown users are derived from `secret`. `nonce` must be random, and used once."""
        self._mechanism = mechanism
        self._identify = identify
        self._secret = secret
        self._own_nonce = messages.encode_base64(nonce)
        self._first: messages.ClientFirst | None = None
        self._server_first = ""
        self._identity: ScramIdentity | None = None
        self._credential: ScramCredential | None = None
        self._over = False
        self.result: Authenticated | None = None

    def receive(self, token: bytes) -> bytes:
        """See `ServerMechanism.receive`. A refusal without a text gives no reason to the client."""
        if self._over:
            raise SaslRefused
        try:
            return self._begin(token) if self._first is None else self._finish(self._first, token)
        except BaseException:
            self._over = True
            raise

    def _begin(self, token: bytes) -> bytes:
        first = _parsed(messages.parse_client_first, token)
        if first.authorization_id not in ("", first.name):
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._first = first
        self._identity = self._identify(first.name, first.is_token)
        credential = self._identity.credential if self._identity else self._unknown(first.name)
        self._credential = credential
        salt = messages.encode_base64(credential.salt)
        self._server_first = f"r={first.nonce}{self._own_nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _finish(self, first: messages.ClientFirst, token: bytes) -> bytes:
        mechanism, credential = self._mechanism, self._credential
        assert credential is not None
        final = _parsed(messages.parse_client_final, token)
        if final.nonce != first.nonce + self._own_nonce or final.gs2_header != first.gs2_header.encode():
            raise SaslRefused
        signed = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        if len(final.proof) != len(signature):
            raise SaslRefused
        proven_key = mechanism.hash(_xor(signature, final.proof))
        is_right = hmac.compare_digest(proven_key, credential.stored_key)
        if not is_right or self._identity is None or credential.iterations < MIN_ITERATIONS:
            raise SaslRefused
        self._over = True
        self.result = self._identity.result
        self._credential = None
        return b"v=" + messages.encode_base64(mechanism.hmac(credential.server_key, signed)).encode()

    def _unknown(self, name: str) -> ScramCredential:
        """The same for the same name, as that of a user would be."""
        mechanism = self._mechanism
        seed = f"{mechanism.name}\0{name}".encode()
        salt = _salt_of(mechanism.hmac(self._secret, b"salt\0" + seed))
        stored = mechanism.hmac(self._secret, b"stored\0" + seed)
        return ScramCredential(salt, stored, mechanism.hmac(self._secret, b"server\0" + seed), MIN_ITERATIONS)


class ScramClient:
    """The client's side."""

    def __init__(
        self, mechanism: ScramMechanism, username: str, password: str, nonce: bytes, *, is_token: bool = False
    ) -> None:
        """`nonce` must be random, and used once. With `is_token` the name is the id of a delegation token, and the
        password its hmac in Base64."""
        self._mechanism = mechanism
        self._password = password.encode()
        self._nonce = messages.encode_base64(nonce)
        extension = f",{messages.TOKEN_AUTHENTICATION}=true" if is_token else ""
        self._bare = f"n={messages.escape_name(username)},r={self._nonce}{extension}"
        self._expected: bytes | None = None
        """The server's signature."""
        self._over = False
        self.complete = False

    @property
    def name(self) -> str:
        return self._mechanism.name

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def receive(self, challenge: bytes) -> bytes | None:
        if self._over:
            raise SaslRefused("the server sent a message after the end of the exchange")
        try:
            if self._expected is None:
                return self._prove(challenge)
            self._over = True
            if not hmac.compare_digest(messages.parse_server_final(challenge), self._expected):
                raise SaslRefused("the server does not know the password either: its signature is wrong")
        except BaseException:
            self._over = True
            raise
        self.complete = True
        return None

    def _prove(self, challenge: bytes) -> bytes:
        mechanism = self._mechanism
        first = messages.parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise SaslRefused("the server's nonce must begin with that of the client, and be longer")
        if not MIN_ITERATIONS <= first.iterations <= MAX_CLIENT_ITERATIONS:
            raise SaslRefused(
                f"the server wants {first.iterations} iterations of {mechanism.name};"
                f" allowed: {MIN_ITERATIONS} to {MAX_CLIENT_ITERATIONS}"
            )
        salted = salted_password(mechanism, self._password, first.salt, first.iterations)
        key = client_key(mechanism, salted)
        without_proof = f"c=biws,r={first.nonce}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        proof = _xor(key, mechanism.hmac(mechanism.hash(key), signed))
        self._expected = mechanism.hmac(server_key(mechanism, salted), signed)
        return f"{without_proof},p={messages.encode_base64(proof)}".encode()


def _parsed(parse: Callable[[bytes], T], token: bytes) -> T:
    """A peer that is not authenticated learns nothing about its mistake."""
    try:
        return parse(token)
    except SaslRefused:
        raise SaslRefused from None


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))


def _salt_of(random: bytes) -> bytes:
    number = int.from_bytes(random) & ((1 << SALT_BITS) - 1)
    letters: list[str] = []
    while number:
        number, digit = divmod(number, len(SALT_LETTERS))
        letters.append(SALT_LETTERS[digit])
    return "".join(reversed(letters)).encode()
