"""Core: the ids of delegation tokens by their HMACs, by which clients name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.kraft.metadata.delegation_tokens import token_hmac

COMPUTED_IN_A_STEP = 500
"""HMACs of a few microseconds each."""


class TokenIndex:
    """A cache that follows the tokens of an image. Mutable; it belongs to one controller, whose key does not change."""

    __slots__ = ("_hmacs", "_ids", "_known")

    def __init__(self) -> None:
        self._known: object = None
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    def follow(self, tokens: Mapping[str, object], secret_key: str) -> Iterable[None]:
        """Take the tokens of an image, which does not change, in steps."""
        if self._known is tokens:
            return
        for token_id in [it for it in self._hmacs if it not in tokens]:
            del self._ids[self._hmacs.pop(token_id)]
        fresh = [it for it in tokens if it not in self._hmacs]
        for number, token_id in enumerate(fresh, 1):
            hmac = token_hmac(secret_key, token_id)
            self._hmacs[token_id] = hmac
            self._ids[hmac] = token_id
            if number % COMPUTED_IN_A_STEP == 0:
                yield None
        self._known = tokens

    def token_id(self, hmac: bytes) -> str | None:
        """The id of the token with this HMAC, among those of the last image."""
        return self._ids.get(hmac)
