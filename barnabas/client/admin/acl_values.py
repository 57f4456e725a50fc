"""Values of access control lists (KIP-140, KIP-290)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

NO_OPERATIONS = -(2**31)


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        return cls.UNKNOWN


class AclPermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> AclPermissionType:
        return cls.UNKNOWN


class AclResourceType(IntEnum):
    """Resource type of an access control list (Kafka's `resource.ResourceType`; that of configs has other numbers)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> AclResourceType:
        return cls.UNKNOWN


class PatternType(IntEnum):
    """Kind of a resource name; MATCH and ANY are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType:
        return cls.UNKNOWN


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
