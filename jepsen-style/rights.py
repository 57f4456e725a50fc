"""Core: access control lists, logins and attempts, as the history of `rights` has them, and what ACLs allow. Names are
Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

ANYBODY = "*"
"""The user of an ACL that is for all."""
ANYTHING = "*"
"""The name of an ACL that is for all resources of its type."""
_IMPLIED = {"DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"), "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",)}
"""Operations that are allowed by an ACL that allows one of these."""


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


def allows(acls: Iterable[Acl], user: str, tried: Tried, *, allow_everyone: bool) -> bool:
    """The decision of a StandardAuthorizer with these ACLs."""
    about = [acl for acl in acls if acl.resource == tried.resource and _matches(acl, tried.name)]
    if not about:
        return allow_everyone
    own = [acl for acl in about if acl.user in (user, ANYBODY)]
    if any(acl.permission == "DENY" and acl.operation in (tried.operation, "ALL") for acl in own):
        return False
    enough = (tried.operation, "ALL", *_IMPLIED.get(tried.operation, ()))
    return any(acl.permission == "ALLOW" and acl.operation in enough for acl in own)


def _matches(acl: Acl, name: str) -> bool:
    return name.startswith(acl.name) if acl.pattern == "PREFIXED" else acl.name in (name, ANYTHING)
