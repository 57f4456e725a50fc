"""Core: delegation tokens of an image (KIP-48, KIP-373).

The image has no secret: the HMAC of a token, which its holder logs in with, follows from the token's id and the key in
the file of every node (`delegation.token.secret.key`).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.kraft.metadata.image import MetadataImage
from barnabas.runtime.identity import USER, Principal

if TYPE_CHECKING:
    from barnabas.protocol.messages.metadata_log import DelegationTokenRecord


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A token as a login needs it."""

    owner: Principal
    """The principal of a session that logs in with the token."""
    hmac: bytes = field(repr=False)
    """Base64 of it is the SCRAM password."""
    expiry_ms: int
    """On the wall clock; no login afterwards."""


def token_of(image: MetadataImage, token_id: str, secret_key: str) -> TokenLogin | None:
    """The token with this id; None if there is none, or if it belongs to no user. `secret_key` is
    `delegation.token.secret.key`, not empty."""
    token = image.others.delegation_tokens.get(token_id)
    owner = None if token is None else principal_of(token.owner)
    if token is None or owner is None or owner.type != USER:
        return None
    expiry_ms = min(token.expiration_timestamp, token.max_timestamp)
    return TokenLogin(owner, token_hmac(secret_key, token_id), expiry_ms)


def token_hmac(secret_key: str, token_id: str) -> bytes:
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def principal_of(text: str) -> Principal:
    """A principal as a token's record names it. Kafka writes a requester that an old record lacks as an empty text."""
    kind, _, name = text.partition(":")
    return Principal(name, kind)


def belongs_to(token: DelegationTokenRecord, principal: Principal) -> bool:
    """The principal owns the token, requested it, or may renew it."""
    name = str(principal)
    return name in (token.owner, token.requester) or name in token.renewers
