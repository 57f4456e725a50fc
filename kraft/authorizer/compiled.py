"""Core: access control lists in the form in which requests are checked.

A check looks at the ACLs of one literal resource, of its prefixes, and of the wildcard. Each of these is a dict by
principal, and then by host, of the operations that are allowed and denied, so a check costs a few look-ups for each of
them, however many ACLs there are. Prefixes are looked up by the lengths that occur. `CompiledAcls` never changes:
`compiling.py` makes the next one.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType

WILDCARD = "*"
"""The resource name, and the host, that match all."""
WILDCARD_PRINCIPAL = "User:*"
_EVERY_OPERATION = -1
_IMPLIES_DESCRIBE = frozenset([AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER])

Holder = tuple[str, str]
"""(principal, host) of an ACL."""

Entries = tuple[tuple[int, int], ...]


class Grants(NamedTuple):
    """All ACLs of one holder on one resource pattern."""

    allowed: int
    """Operations that are allowed, each a bit, with those that they imply."""
    denied: int
    entries: Entries
    """The (operation, permission type) pairs, as the ACLs have them."""


Bucket = dict[str, dict[str, Grants]]
"""The ACLs of one resource pattern, by principal and host."""

Place = tuple[int, int, str, Bucket]
"""(resource type, pattern type, name, ACLs) of a resource pattern."""


@dataclass(frozen=True, slots=True)
class Acl:
    """One ACL, named as Kafka's audit log names it."""

    resource_type: AclResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    def __str__(self) -> str:
        return (
            f"StandardAcl[resourceType={self.resource_type.name}, resourceName={self.resource_name},"
            f" patternType={self.pattern_type.name}, principal={self.principal}, host={self.host},"
            f" operation={self.operation.name}, permissionType={self.permission_type.name}]"
        )


class Unmatched(enum.Enum):
    """No ACL applies to the principal, the host and the operation."""

    NO_ACL = "the resource has no ACL, of whatever principal"
    NOT_ALLOWED = "the resource has other ACLs"


class Match:
    """An ACL decides. The audit log names it; most decisions are in no log, so it is found when it is asked for."""

    __slots__ = ("_host", "_operation", "_place", "_principal", "allows")

    def __init__(self, allows: bool, place: Place, operation: int, principal: str, host: str) -> None:
        self.allows = allows
        self._place = place
        self._operation = operation
        self._principal = principal
        self._host = host

    @property
    def acl(self) -> Acl:
        """The ACL that decides: Kafka takes the first that denies, or the last that allows, in its order."""
        resource_type, pattern_type, name, bucket = self._place
        candidates = []
        for principal, host in dict.fromkeys(_holders(self._principal, self._host)):
            grants = bucket.get(principal, {}).get(host)
            for entry in () if grants is None else grants.entries:
                alone = grants_of((entry,))
                if (alone.allowed if self.allows else alone.denied) >> self._operation & 1:
                    candidates.append((entry[0], principal, host, entry[1]))
        operation, principal, host, permission_type = max(candidates) if self.allows else min(candidates)
        return Acl(
            AclResourceType(resource_type),
            name,
            PatternType(pattern_type),
            principal,
            host,
            AclOperation(operation),
            AclPermissionType(permission_type),
        )

    def __str__(self) -> str:
        return f"MatchingAcl(acl={self.acl})"

    @property
    def reason(self) -> str:
        """The rule, as a decision note explains it."""
        return "" if self.allows else f"an ACL denies it: {self.acl}"


@dataclass(frozen=True, slots=True)
class Patterns:
    """The ACLs of one resource type, by name."""

    literal: dict[str, Bucket] = field(default_factory=dict)
    prefixed: dict[str, Bucket] = field(default_factory=dict)
    length_counts: dict[int, int] = field(default_factory=dict)
    """The number of prefixes by length."""
    lengths: tuple[int, ...] = ()
    """The lengths of prefixes, longest first."""

    def matching(self, resource_type: int, name: str) -> list[Place]:
        """The patterns that match a name, in Kafka's order."""
        found: list[Place] = []
        bucket = self.literal.get(name)
        if bucket is not None:
            found.append((resource_type, PatternType.LITERAL, name, bucket))
        prefixed, longest = self.prefixed, len(name)
        for length in self.lengths:
            if length <= longest:
                prefix = name[:length]
                bucket = prefixed.get(prefix)
                if bucket is not None:
                    found.append((resource_type, PatternType.PREFIXED, prefix, bucket))
        if name != WILDCARD:
            bucket = self.literal.get(WILDCARD)
            if bucket is not None:
                found.append((resource_type, PatternType.LITERAL, WILDCARD, bucket))
        return found


NO_PATTERNS = Patterns()


@dataclass(frozen=True, slots=True)
class CompiledAcls:
    """All ACLs at one offset of the metadata log."""

    count: int = 0
    by_type: dict[int, Patterns] = field(default_factory=dict)
    holdings: dict[tuple[int, str, str], dict[tuple[int, str], Grants]] = field(default_factory=dict)
    """By (resource type, principal, host): the same grants by (pattern type, name)."""

    def match(self, operation: int, resource_type: int, name: str, principal: str, host: str) -> Match | Unmatched:
        """Find what decides: any ACL that denies, else one that allows."""
        places = self.by_type.get(resource_type, NO_PATTERNS).matching(resource_type, name)
        if not places:
            return Unmatched.NO_ACL
        host = plain_host(host)
        bit = 1 << operation
        allowing: Place | None = None
        for place in places:
            bucket = place[3]
            for of_principal in (bucket.get(principal), bucket.get(WILDCARD_PRINCIPAL)):
                if of_principal is not None:
                    for grants in (of_principal.get(WILDCARD), of_principal.get(host)):
                        if grants is not None:
                            if grants.denied & bit:
                                return Match(False, place, operation, principal, host)
                            if grants.allowed & bit:
                                allowing = place
        if allowing is None:
            return Unmatched.NOT_ALLOWED
        return Match(True, allowing, operation, principal, host)

    def held(self, resource_type: int, principal: str, host: str) -> Iterator[tuple[tuple[int, str], Grants]]:
        """The patterns of a type with ACLs that apply to the principal on the host, and the grants of each."""
        for holder in _holders(principal, host):
            yield from self.holdings.get((resource_type, *holder), {}).items()


def plain_host(host: str) -> str:
    """The one form of an address: IPv6 has several, and may hold an IPv4 address."""
    return _plain_address(host) if ":" in host else host


@lru_cache(maxsize=1024)
def _plain_address(host: str) -> str:
    """Parsing takes longer than the rest of a check."""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def _holders(principal: str, host: str) -> tuple[Holder, ...]:
    host = plain_host(host)
    return (principal, host), (principal, WILDCARD), (WILDCARD_PRINCIPAL, host), (WILDCARD_PRINCIPAL, WILDCARD)


def grants_of(entries: Entries) -> Grants:
    allowed = denied = 0
    for operation, permission_type in entries:
        if permission_type != AclPermissionType.ALLOW:
            denied |= _bits(operation)
            continue
        allowed |= _bits(operation)
        if operation in _IMPLIES_DESCRIBE:
            allowed |= 1 << AclOperation.DESCRIBE
        elif operation == AclOperation.ALTER_CONFIGS:
            allowed |= 1 << AclOperation.DESCRIBE_CONFIGS
    return Grants(allowed, denied, entries)


def _bits(operation: int) -> int:
    return _EVERY_OPERATION if operation == AclOperation.ALL else 1 << operation
