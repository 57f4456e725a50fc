"""Core: access control lists in the form in which requests are checked.

A check looks at the ACLs of one literal resource, of its prefixes, and of the wildcard. Each of these is a dict from
(principal, host) to the operations that are allowed and denied, so a check costs four look-ups for each of them,
however many ACLs there are. Prefixes are looked up by the lengths that occur. `CompiledAcls` never changes: the next
one shares all resources that a change does not touch, and is made in steps.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType

if TYPE_CHECKING:
    from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord

WILDCARD = "*"
"""The resource name, and the host, that match all."""
WILDCARD_PRINCIPAL = "User:*"
STEP_CHANGES = 200
"""Changes that one step compiles: about 1 ms."""

_EVERY_OPERATION = -1
_IMPLIES_DESCRIBE = frozenset([AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER])

K = TypeVar("K")

Holder = tuple[str, str]
"""(principal, host) of an ACL."""
ResourceKey = tuple[int, int, str]
"""(resource type, pattern type, name)."""
Change = tuple["AccessControlEntryRecord | None", "AccessControlEntryRecord | None"]
"""An ACL before and after; None before it is created, and after it is deleted."""


Entries = tuple[tuple[int, int], ...]


class Grants(NamedTuple):
    """All ACLs of one holder on one resource pattern."""

    allowed: int
    """Operations that are allowed, each a bit, with those that they imply."""
    denied: int
    entries: Entries
    """The (operation, permission type) pairs, as the ACLs have them."""


Bucket = dict[Holder, Grants]
"""The ACLs of one resource pattern."""


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


@dataclass(frozen=True, slots=True)
class Match:
    """The outcome of a check."""

    acl: Acl | None
    """The ACL that decides; None if none applies to the principal, the host and the operation."""
    has_acls: bool
    """The resource has an ACL, of whatever principal."""


@dataclass(frozen=True, slots=True)
class CompiledAcls:
    """All ACLs at one offset of the metadata log."""

    count: int = 0
    buckets: dict[ResourceKey, Bucket] = field(default_factory=dict)
    holdings: dict[tuple[int, str, str], dict[tuple[int, str], Grants]] = field(default_factory=dict)
    """By (resource type, principal, host): the same grants by (pattern type, name)."""
    prefix_counts: dict[tuple[int, int], int] = field(default_factory=dict)
    """The number of prefixed patterns by (resource type, length)."""
    prefix_lengths: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The lengths of prefixed patterns by resource type, longest first."""

    def match(self, operation: int, resource_type: int, name: str, principal: str, host: str) -> Match:
        """Find the ACL that decides: any that denies, else one that allows."""
        holders = _holders(principal, host)
        has_acls = False
        allowing: tuple[ResourceKey, Bucket] | None = None
        for key in self._keys(resource_type, name):
            bucket = self.buckets.get(key)
            if bucket is None:
                continue
            has_acls = True
            for holder in holders:
                grants = bucket.get(holder)
                if grants is None:
                    continue
                if grants.denied >> operation & 1:
                    return Match(_deciding(key, bucket, holders, operation, denies=True), True)
                if grants.allowed >> operation & 1:
                    allowing = key, bucket
        if allowing is None:
            return Match(None, has_acls)
        return Match(_deciding(*allowing, holders, operation, denies=False), True)

    def _keys(self, resource_type: int, name: str) -> Iterator[ResourceKey]:
        """The patterns that match a name, in Kafka's order."""
        yield resource_type, PatternType.LITERAL, name
        for length in self.prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield resource_type, PatternType.PREFIXED, name[:length]
        if name != WILDCARD:
            yield resource_type, PatternType.LITERAL, WILDCARD

    def held(self, resource_type: int, principal: str, host: str) -> Iterator[tuple[tuple[int, str], Grants]]:
        """The patterns of a type with ACLs that apply to the principal on the host, and the grants of each."""
        for holder in _holders(principal, host):
            yield from self.holdings.get((resource_type, *holder), {}).items()

    def changed(self, changes: Iterable[Change]) -> Generator[None, None, CompiledAcls]:
        """The ACLs after these changes, in steps."""
        compiling = _Compiling(self)
        for index, (before, after) in enumerate(changes, 1):
            if before is not None:
                compiling.remove(before)
            if after is not None:
                compiling.add(after)
            if index % STEP_CHANGES == 0:
                yield None
        return compiling.finished()


class _Compiling:
    """Copies each dict when it is first written."""

    def __init__(self, acls: CompiledAcls) -> None:
        self._count = acls.count
        self._buckets = dict(acls.buckets)
        self._holdings = dict(acls.holdings)
        self._own: set[tuple[object, ...]] = set()
        """Keys of buckets and holdings that were copied. The second part of a key is a number in one and a principal in
        the other, so they differ."""
        self._prefix_counts = dict(acls.prefix_counts)

    def add(self, record: AccessControlEntryRecord) -> None:
        self._count += 1
        self._put(record, lambda entries: (*entries, _entry(record)))

    def remove(self, record: AccessControlEntryRecord) -> None:
        self._count -= 1
        self._put(record, lambda entries: _without(entries, _entry(record)))

    def _put(self, record: AccessControlEntryRecord, change: Callable[[Entries], Entries]) -> None:
        key = (record.resource_type, record.pattern_type, record.resource_name)
        holder = (record.principal, plain_host(record.host))
        bucket = self._buckets.get(key, {})
        old = bucket.get(holder)
        entries = change(() if old is None else old.entries)
        grants = _grants(entries) if entries else None
        if key not in self._own:
            self._own.add(key)
            bucket = self._buckets[key] = dict(bucket)
            if not bucket:
                self._count_prefix(key, 1)
        _set(bucket, holder, grants)
        if not bucket:
            del self._buckets[key]
            self._own.discard(key)
            self._count_prefix(key, -1)
        held_key = (record.resource_type, *holder)
        held = self._holdings.get(held_key, {})
        if held_key not in self._own:
            self._own.add(held_key)
            held = self._holdings[held_key] = dict(held)
        _set(held, (record.pattern_type, record.resource_name), grants)
        if not held:
            del self._holdings[held_key]
            self._own.discard(held_key)

    def _count_prefix(self, key: ResourceKey, change: int) -> None:
        resource_type, pattern_type, name = key
        if pattern_type == PatternType.PREFIXED:
            place = (resource_type, len(name))
            self._prefix_counts[place] = self._prefix_counts.get(place, 0) + change
            if not self._prefix_counts[place]:
                del self._prefix_counts[place]

    def finished(self) -> CompiledAcls:
        lengths: dict[int, list[int]] = {}
        for resource_type, length in self._prefix_counts:
            lengths.setdefault(resource_type, []).append(length)
        longest_first = {kind: tuple(sorted(it, reverse=True)) for kind, it in lengths.items()}
        return CompiledAcls(self._count, self._buckets, self._holdings, self._prefix_counts, longest_first)


def plain_host(host: str) -> str:
    """The one form of an address: IPv6 has several, and may hold an IPv4 address."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def _holders(principal: str, host: str) -> tuple[Holder, ...]:
    host = plain_host(host)
    return (principal, host), (principal, WILDCARD), (WILDCARD_PRINCIPAL, host), (WILDCARD_PRINCIPAL, WILDCARD)


def _entry(record: AccessControlEntryRecord) -> tuple[int, int]:
    return AclOperation(record.operation), AclPermissionType(record.permission_type)


def _without(entries: Entries, entry: tuple[int, int]) -> Entries:
    """The entries without one that equals `entry`: two ACLs may be equal but for their ids."""
    left = list(entries)
    if entry in left:
        left.remove(entry)
    return tuple(left)


def _set(grants_by: dict[K, Grants], key: K, grants: Grants | None) -> None:
    if grants is None:
        grants_by.pop(key, None)
    else:
        grants_by[key] = grants


def _grants(entries: Entries) -> Grants:
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


def _deciding(key: ResourceKey, bucket: Bucket, holders: tuple[Holder, ...], operation: int, *, denies: bool) -> Acl:
    """The ACL of a bucket that decides: Kafka takes the first that denies, or the last that allows, in its order."""
    candidates = []
    for principal, host in dict.fromkeys(holders):
        grants = bucket.get((principal, host))
        for entry in () if grants is None else grants.entries:
            alone = _grants((entry,))
            if (alone.denied if denies else alone.allowed) >> operation & 1:
                candidates.append((entry[0], principal, host, entry[1]))
    of_operation, principal, host, permission_type = min(candidates) if denies else max(candidates)
    resource_type, pattern_type, name = key
    return Acl(
        AclResourceType(resource_type),
        name,
        PatternType(pattern_type),
        principal,
        host,
        AclOperation(of_operation),
        AclPermissionType(permission_type),
    )
