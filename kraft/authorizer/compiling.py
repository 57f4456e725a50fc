"""Core: the next compiled access control lists. They share all resources that a change does not touch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

from barnabas.kraft.authorizer.compiled import (
    NO_PATTERNS,
    CompiledAcls,
    Entries,
    Grants,
    Patterns,
    grants_of,
    plain_host,
)
from barnabas.protocol.acls import AclOperation, AclPermissionType, PatternType

if TYPE_CHECKING:
    from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord

STEP_CHANGES = 200
"""Changes that one step compiles: about 1 ms."""

Change = tuple["AccessControlEntryRecord | None", "AccessControlEntryRecord | None"]
"""An ACL before and after; None before it is created, and after it is deleted."""

K = TypeVar("K")
J = TypeVar("J")
V = TypeVar("V")


def changed(acls: CompiledAcls, changes: Iterable[Change]) -> Generator[None, None, CompiledAcls]:
    """The ACLs after these changes, in steps."""
    compiling = _Compiling(acls)
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
        self._by_type = dict(acls.by_type)
        self._holdings = dict(acls.holdings)
        self._own: set[tuple[object, ...]] = set()
        """The keys by which dicts that were copied are found: (resource type,), (resource type, pattern type, name),
        the same with a principal, and (resource type, principal, host)."""

    def add(self, record: AccessControlEntryRecord) -> None:
        self._count += 1
        self._put(record, lambda entries: (*entries, _entry(record)))

    def remove(self, record: AccessControlEntryRecord) -> None:
        self._count -= 1
        self._put(record, lambda entries: _without(entries, _entry(record)))

    def _put(self, record: AccessControlEntryRecord, change: Callable[[Entries], Entries]) -> None:
        principal, host = record.principal, plain_host(record.host)
        pattern = (record.pattern_type, record.resource_name)
        key = (record.resource_type, principal, host)
        held = self._owned(self._holdings, key, key)
        old = held.get(pattern)
        entries = change(() if old is None else old.entries)
        grants = grants_of(entries) if entries else None
        _set(held, pattern, grants)
        if not held:
            del self._holdings[key]
        if record.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            self._put_pattern(record, host, grants)

    def _put_pattern(self, record: AccessControlEntryRecord, host: str, grants: Grants | None) -> None:
        name, principal = record.resource_name, record.principal
        patterns = self._patterns(record.resource_type)
        is_prefix = record.pattern_type == PatternType.PREFIXED
        by_name = patterns.prefixed if is_prefix else patterns.literal
        had = name in by_name
        key = (record.resource_type, record.pattern_type, name)
        bucket = self._owned(by_name, name, key)
        by_host = self._owned(bucket, principal, (*key, principal))
        _set(by_host, host, grants)
        if not by_host:
            del bucket[principal]
        if not bucket:
            del by_name[name]
        if is_prefix:
            lengths = patterns.length_counts
            lengths[len(name)] = lengths.get(len(name), 0) + (name in by_name) - had

    def _patterns(self, resource_type: int) -> Patterns:
        """Those of a type, to be written."""
        patterns = self._by_type.get(resource_type, NO_PATTERNS)
        if (resource_type,) not in self._own:
            self._own.add((resource_type,))
            patterns = Patterns(dict(patterns.literal), dict(patterns.prefixed), dict(patterns.length_counts))
            self._by_type[resource_type] = patterns
        return patterns

    def _owned(self, parent: dict[K, dict[J, V]], key: K, mark: tuple[object, ...]) -> dict[J, V]:
        """The dict in `parent`, made or copied if that was not done yet."""
        child = parent.get(key)
        if child is None or mark not in self._own:
            self._own.add(mark)
            child = parent[key] = {} if child is None else dict(child)
        return child

    def finished(self) -> CompiledAcls:
        by_type = {kind: _finished(it) for kind, it in self._by_type.items() if it.literal or it.prefixed}
        return CompiledAcls(self._count, by_type, self._holdings)


def _finished(patterns: Patterns) -> Patterns:
    counts = {length: count for length, count in patterns.length_counts.items() if count}
    return Patterns(patterns.literal, patterns.prefixed, counts, tuple(sorted(counts, reverse=True)))


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
