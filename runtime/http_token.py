"""Core: the token that protects HTTP pages. Clients send it as a bearer token, or as the password of any user."""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field

LEAST_CHARACTERS = 16
MOST_CHARACTERS = 512
ALLOWED = f"a file whose first line has {LEAST_CHARACTERS} to {MOST_CHARACTERS} characters, ASCII without spaces"
CHALLENGE = 'Basic realm="barnabas", charset="UTF-8"'
"""For `WWW-Authenticate`. Browsers ask for a password only if the first challenge is this one."""


@dataclass(frozen=True, slots=True)
class HttpToken:
    """One token; servers compare it, clients send it."""

    secret: str = field(repr=False)

    @classmethod
    def parse(cls, data: bytes) -> HttpToken:
        """The token on the first line of a file. Raises ValueError without the contents."""
        line = data.partition(b"\n")[0].removesuffix(b"\r")
        if not LEAST_CHARACTERS <= len(line) <= MOST_CHARACTERS or not all(0x21 <= it <= 0x7E for it in line):
            raise ValueError("the first line is no token")
        return cls(line.decode("ascii"))

    @property
    def authorization(self) -> str:
        """The value of the header `Authorization` of a client."""
        return f"Bearer {self.secret}"

    def admits(self, authorization: str) -> bool:
        """True if the header `Authorization` (empty: there is none) carries this token. Takes equally long for all
        wrong tokens of a length."""
        scheme, _, value = authorization.partition(" ")
        given = value.strip().encode(errors="surrogateescape")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except ValueError:
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given, self.secret.encode())
