"""The fields of a response that name what its client may do: one bit for each operation (KIP-430)."""

from __future__ import annotations

from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas.runtime.call import Call

NO_OPERATION = 0


def topic_operations(call: Call, name: str) -> int:
    return call.authorized_operations(AclResourceType.TOPIC, name)


def group_operations(call: Call, group_id: str) -> int:
    return call.authorized_operations(AclResourceType.GROUP, group_id)


def cluster_operations(call: Call) -> int:
    """None of them if the client may not describe the cluster."""
    if not call.may_on_cluster(AclOperation.DESCRIBE):
        return NO_OPERATION
    return call.authorized_operations(AclResourceType.CLUSTER, CLUSTER_NAME)
