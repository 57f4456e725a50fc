"""Core: SASL/PLAIN (RFC 4616): a name and a password in one token."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from barnabas.protocol.sasl.jaas import LoginModule
from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused

PLAIN = "PLAIN"
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX = "user_"

PlainUsers = Mapping[str, bytes]
"""Digests of the passwords, by user."""

_DIGEST_BYTES = 32


def digest(password: str) -> bytes:
    """Digests have one length, so a comparison takes the same time whatever the password is."""
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()


def users_of(module: LoginModule) -> PlainUsers:
    """The users of a listener: the options `user_<name>="<password>"`."""
    return {
        key.removeprefix(USER_PREFIX): digest(password)
        for key, password in module.options.items()
        if key.startswith(USER_PREFIX)
    }


class PlainServer:
    """The server's side."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.result: Authenticated | None = None

    def receive(self, token: bytes) -> bytes:
        if self.result is not None:
            raise SaslRefused("the exchange is over")
        parts = token.split(b"\0", 3)
        if len(parts) != 3:
            raise SaslRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        try:
            authorization_id, name, password = (str(part, "utf-8") for part in parts)
        except UnicodeDecodeError:
            raise SaslRefused("Invalid SASL/PLAIN response: it is not encoded in UTF-8") from None
        if not name:
            raise SaslRefused("Authentication failed: username not specified")
        if not password:
            raise SaslRefused("Authentication failed: password not specified")
        expected = self._users.get(name)
        is_right = hmac.compare_digest(digest(password), expected or bytes(_DIGEST_BYTES))
        if expected is None or not is_right:
            raise SaslRefused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.result = Authenticated(name)
        return b""


class PlainClient:
    """The client's side."""

    name = PLAIN

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()
        self.complete = False

    def first(self) -> bytes:
        return self._token

    def receive(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslRefused("the server answered SASL/PLAIN with a challenge")
        self.complete = True
        return None
