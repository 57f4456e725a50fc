"""Core: access control lists, logins and attempts, as the history of `rights` has them. Names are Kafka's."""

from __future__ import annotations

from typing import NamedTuple

ANYBODY = "*"
"""The user of an ACL that is for all."""


class Acl(NamedTuple):
    """One access control list."""

    resource: str
    """TOPIC, GROUP, TRANSACTIONAL_ID."""
    pattern: str
    """LITERAL or PREFIXED."""
    name: str
    """The resource's, or its beginning."""
    user: str
    operation: str
    """READ, WRITE, ..., ALL."""
    permission: str
    """ALLOW or DENY."""


class Login(NamedTuple):
    """A user with one of the passwords that it had, has, or will have."""

    user: str
    version: int


class Tried(NamedTuple):
    """An operation that a user tries."""

    action: str
    """A name of `clients.trials`."""
    resource: str
    name: str
    operation: str
    """The operation that ACLs must allow."""
