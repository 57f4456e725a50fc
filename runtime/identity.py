"""Core: principals, the authenticated senders of requests."""

from __future__ import annotations

from dataclasses import dataclass

USER = "User"
"""The type of every principal of Kafka's own principal builder."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated peer, as access control lists name it: `User:alice`."""

    name: str
    type: str = USER
    token_authenticated: bool = False
    """It authenticated by a delegation token (KIP-48), and may not create another."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parse `Type:name`. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise ValueError(f"not a principal: {text!r}; allowed: Type:name, for example User:alice")
        return cls(name, kind)


ANONYMOUS = Principal("ANONYMOUS")
"""The principal of a connection that did not authenticate."""
