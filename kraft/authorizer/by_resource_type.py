"""Core: the right to do something on any resource of a type at all (KIP-679)."""

from __future__ import annotations

from barnabas.kraft.authorizer.compiled import WILDCARD, CompiledAcls
from barnabas.protocol.acls import AclOperation, AclPermissionType, PatternType

ANY_NAME = "hardcode"
"""The resource name that Kafka checks first, so that super users pass whatever is denied."""


def allows_any(acls: CompiledAcls, operation: int, resource_type: int, principal: str, host: str) -> bool:
    """True if an ACL allows `operation` on a resource, or on a prefix, that no other ACL denies wholly. Only ACLs of
    `operation` itself and of ALL count: no operation implies another here.
    """
    allowed: list[tuple[int, str]] = []
    denied: set[tuple[int, str]] = set()
    for pattern, grants in acls.held(resource_type, principal, host):
        for of_operation, permission_type in grants.entries:
            if of_operation not in (operation, AclOperation.ALL):
                continue
            if permission_type == AclPermissionType.ALLOW:
                allowed.append(pattern)
            elif permission_type == AclPermissionType.DENY:
                denied.add(pattern)
    if (PatternType.LITERAL, WILDCARD) in denied:
        return False
    if (PatternType.LITERAL, WILDCARD) in allowed:
        return True
    denied_lengths = sorted({len(name) for kind, name in denied if kind == PatternType.PREFIXED})
    for kind, name in allowed:
        if kind not in (PatternType.LITERAL, PatternType.PREFIXED):
            continue
        if kind == PatternType.LITERAL and (kind, name) in denied:
            continue
        prefixes = (name[:length] for length in denied_lengths if length <= len(name))
        if not any((PatternType.PREFIXED, prefix) in denied for prefix in prefixes):
            return True
    return False
