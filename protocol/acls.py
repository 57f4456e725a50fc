"""Core: operations, resources and patterns of access control lists, with their codes (KIP-11, KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.protocol.open_enums import OpenIntEnum

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class AclOperation(OpenIntEnum):
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


class AclPermissionType(OpenIntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclResourceType(OpenIntEnum):
    """Resource type of an access control list (Kafka's `resource.ResourceType`; that of configs has other numbers)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(OpenIntEnum):
    """Kind of a resource name; MATCH and ANY are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


SUPPORTED_OPERATIONS: Mapping[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""Operations that authorized-operations fields name (KIP-430)."""


def allowed_bits(operations: Iterable[AclOperation]) -> int:
    """The field of authorized operations in a response (KIP-430)."""
    return sum(1 << operation for operation in operations)
