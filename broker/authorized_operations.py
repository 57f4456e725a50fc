"""The fields of a response that name what its client may do: bits of operations (KIP-430)."""

from __future__ import annotations

from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType, allowed_bits
from barnabas.runtime.call import Call

SUPPORTED = {
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
}
"""The operations that each type of resource knows, as far as responses name them."""

EVERY = {resource_type: allowed_bits(operations) for resource_type, operations in SUPPORTED.items()}

NONE_ALLOWED = 0


def authorized_operations(call: Call, resource_type: AclResourceType, name: str) -> int:
    """The operations that the client may do on a resource. Without an authorizer: every one that the type knows."""
    if not call.is_restricted:
        return EVERY[resource_type]
    return allowed_bits(
        operation for operation in SUPPORTED[resource_type] if call.may(operation, resource_type, name, audited=False)
    )


def topic_operations(call: Call, name: str) -> int:
    return authorized_operations(call, AclResourceType.TOPIC, name)


def group_operations(call: Call, group_id: str) -> int:
    return authorized_operations(call, AclResourceType.GROUP, group_id)


def cluster_operations(call: Call) -> int:
    """No operation if the client may not describe the cluster."""
    if not call.may_on_cluster(AclOperation.DESCRIBE):
        return NONE_ALLOWED
    return authorized_operations(call, AclResourceType.CLUSTER, CLUSTER_NAME)
