"""Core: the interface of SASL mechanisms, on both ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class SaslRefused(Exception):
    """The peer did not authenticate. The text goes to the peer and into the log: it contains no secret, and never says
    whether a user exists."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The result of an exchange on the server's side."""

    name: str
    """The authorization id: the name of the principal, whose type is User."""
    token_authenticated: bool = False
    """By a delegation token (KIP-48)."""
    expires_ms: int | None = None
    """End of the credential on the wall clock (a token's lifetime); None: it does not expire."""


class ServerMechanism(Protocol):
    """The server's side of one exchange of one connection."""

    @property
    def result(self) -> Authenticated | None:
        """None until the exchange is complete."""

    def receive(self, token: bytes) -> bytes:
        """Take a token of the client and return the answer, which may be empty. Raises SaslRefused."""


class ClientMechanism(Protocol):
    """The client's side of one exchange of one connection."""

    @property
    def name(self) -> str:
        """The name in SaslHandshake: `SCRAM-SHA-512`."""

    @property
    def complete(self) -> bool:
        """The server proved what the mechanism wants it to prove."""

    def first(self) -> bytes:
        """The first token. May be empty."""

    def receive(self, challenge: bytes) -> bytes | None:
        """Take an answer of the server and return the next token; None if there is none. Raises SaslRefused if the
        server did not prove itself, or reports an error."""


ServerMechanisms = dict[str, Callable[[], ServerMechanism]]
"""By name; each call begins an exchange. In the order in which SaslHandshake lists them."""

ClientMechanismFactory = Callable[[str], ClientMechanism]
"""Begins an exchange with the host of that name."""
