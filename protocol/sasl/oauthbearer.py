"""Core: OAUTHBEARER (RFC 7628 with the extensions of KIP-342): the messages, and both ends of an exchange.

A validator judges the token: `protocol/sasl/jwt_claims.py` judges its claims, `runtime/sasl/jwt_tokens.py` its
signature.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from barnabas.protocol.sasl.mechanism import Authenticated, SaslRefused

log = logging.getLogger(__name__)

MECHANISM = "OAUTHBEARER"
MOST_TOKEN_CHARACTERS = 64 * 1024
"""Bounds the work for one token. Tokens with hundreds of groups in them have a quarter of this."""
MOST_EXTENSIONS = 100

_SEPARATOR = "\x01"
_DUMMY = b"\x01"
"""The client's answer to an error."""
_AUTH = "auth"
_GS2_HEADER = re.compile(r"n,(?:a=((?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_CREDENTIALS = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_MALFORMED = "Invalid OAUTHBEARER client first message"
_LONGEST_ERROR_SHOWN = 500


class TokenRefused(Exception):
    """The server does not accept a token. The text is for the server's log, and does not contain the token."""

    def __init__(self, reason: str, *, missing_scope: str | None = None) -> None:
        super().__init__(reason)
        self.missing_scope = missing_scope
        """The scope that the token lacks."""

    @property
    def error(self) -> str:
        """The error for the client, in JSON, as Kafka writes it."""
        if self.missing_scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":{json.dumps(self.missing_scope)}}}'


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token, and its claims that matter to Kafka."""

    value: str = field(repr=False)
    principal: str
    """The subject."""
    expires_ms: int | None
    """On the wall clock; None: unknown."""
    starts_ms: int | None = None
    """The time at which it was issued."""
    scope: frozenset[str] = frozenset()


ValidateToken = Callable[[str], BearerToken]
"""Returns what a token of a client proves. Raises TokenRefused."""


@dataclass(frozen=True, slots=True)
class ClientFirstMessage:
    """The first message of a client."""

    token: str = field(repr=False)
    authorization_id: str = ""
    """Empty: as the token says."""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    """KIP-342; a server accepts all of them, and uses none."""

    def encode(self) -> bytes:
        authorization_id = self.authorization_id.replace("=", "=3D").replace(",", "=2C")
        header = f"n,{f'a={authorization_id}' if authorization_id else ''},"
        pairs = [f"{_AUTH}=Bearer {self.token}", *(f"{name}={value}" for name, value in self.extensions.items())]
        return _SEPARATOR.join([header, *pairs, _SEPARATOR]).encode()

    @classmethod
    def parse(cls, message: bytes) -> ClientFirstMessage:
        """Raises SaslRefused with a text that contains nothing of the message."""
        if not message.isascii():
            raise SaslRefused(_MALFORMED)
        header, separator, rest = message.decode("ascii").partition(_SEPARATOR)
        gs2 = _GS2_HEADER.fullmatch(header)
        if gs2 is None or not separator:
            raise SaslRefused(_MALFORMED)
        authorization_id = (gs2[1] or "").replace("=2C", ",").replace("=3D", "=")
        extensions = _pairs(rest)
        if _AUTH not in extensions:
            raise SaslRefused(f"{_MALFORMED}: 'auth' not specified")
        return cls(_bearer_token(extensions.pop(_AUTH)), authorization_id, extensions)


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raises ValueError for an extension that cannot be sent."""
    for name, value in extensions.items():
        if name == _AUTH or not _EXTENSION_NAME.fullmatch(name):
            raise ValueError(f"extension name {name!r}; allowed: letters, except {_AUTH!r}")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"value of extension {name!r}; allowed: printable ASCII characters")


class OAuthBearerServer:
    """The server's side of one exchange."""

    def __init__(self, validate: ValidateToken) -> None:
        self._validate = validate
        self._error: str | None = None
        self._result: Authenticated | None = None

    @property
    def result(self) -> Authenticated | None:
        return self._result

    def receive(self, token: bytes) -> bytes:
        if self._error is not None:
            raise SaslRefused(self._error)
        message = self._parsed(token)
        try:
            accepted = self._validate(message.token)
        except TokenRefused as refused:
            log.info("a token was refused: %s", refused)
            self._error = refused.error
            return refused.error.encode()
        if message.authorization_id not in ("", accepted.principal):
            raise SaslRefused(
                f"Authentication failed: Client requested an authorization id ({message.authorization_id}) that is"
                f" different from the token's principal name ({accepted.principal})"
            )
        self._result = Authenticated(accepted.principal, expires_ms=accepted.expires_ms)
        return b""

    def _parsed(self, token: bytes) -> ClientFirstMessage:
        try:
            return ClientFirstMessage.parse(token)
        except SaslRefused as refused:
            log.info("%s", refused)
            raise SaslRefused from None


class OAuthBearerClient:
    """The client's side of one exchange."""

    name = MECHANISM

    def __init__(self, token: BearerToken, extensions: Mapping[str, str] | None = None) -> None:
        self._first = ClientFirstMessage(token.value, extensions=extensions or {})
        self._error: str | None = None
        self._complete = False

    @property
    def complete(self) -> bool:
        return self._complete

    def first(self) -> bytes:
        return self._first.encode()

    def receive(self, challenge: bytes) -> bytes | None:
        if self._error is not None or self._complete:
            raise SaslRefused(f"the server refused the token: {self._error or 'it sent more than the exchange has'}")
        if challenge:
            self._error = _shown(challenge)
            return _DUMMY
        self._complete = True
        return None


def _pairs(text: str) -> dict[str, str]:
    """`a=b\\x01c=d\\x01\\x01`; a later value of a name replaces an earlier one."""
    parts = text.split(_SEPARATOR, MOST_EXTENSIONS + 2)
    if parts[-2:] != ["", ""]:
        raise SaslRefused(_MALFORMED)
    pairs = {}
    for part in parts[:-2]:
        name, equals, value = part.partition("=")
        if not equals or not _EXTENSION_NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise SaslRefused(_MALFORMED)
        pairs[name] = value
    return pairs


def _bearer_token(value: str) -> str:
    if len(value) > MOST_TOKEN_CHARACTERS:
        raise SaslRefused(f"the token has more than {MOST_TOKEN_CHARACTERS} characters")
    credentials = _CREDENTIALS.fullmatch(value)
    if credentials is None:
        raise SaslRefused(f"{_MALFORMED}: invalid 'auth' format")
    if credentials[1].lower() != "bearer":
        raise SaslRefused(f"{_MALFORMED}: the scheme is not Bearer")
    return credentials[2]


def _shown(challenge: bytes) -> str:
    text = challenge[:_LONGEST_ERROR_SHOWN].decode(errors="replace")
    return "".join(each if each.isprintable() else "�" for each in text)
