"""Values of access control lists (KIP-140, KIP-290)."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "PatternType",
    "operations_of",
]

NO_OPERATIONS = -(2**31)


@dataclass(frozen=True, slots=True)
class AclBinding:
    """`principal` is allowed, or denied, `operation` on a resource from `host` (`*`: any)."""

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return (
            f"{self.permission_type.name} {self.principal} from {self.host} {self.operation.name}"
            f" {self.pattern_type.name} {self.resource_type.name} {self.resource_name}"
        )

    def to_filter(self) -> AclBindingFilter:
        """The filter that matches this binding alone."""
        return AclBindingFilter(
            self.resource_type,
            self.resource_name,
            self.principal,
            self.operation,
            self.permission_type,
            self.host,
            self.pattern_type,
        )


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Filter of bindings: None and ANY match everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


def operations_of(bits: int) -> tuple[AclOperation, ...] | None:
    """Operations whose bits are set; None if the response has none."""
    if bits == NO_OPERATIONS:
        return None
    return tuple(operation for operation in AclOperation if bits >> operation & 1)
