"""Core: Kafka's errors, with their texts, for resources on which a client may not do what it asks for."""

from __future__ import annotations

from barnabas.protocol.acls import AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError

_REFUSALS = {
    AclResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    AclResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    AclResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    AclResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}


def refusal_on(resource_type: AclResourceType) -> KafkaError:
    code, message = _REFUSALS[resource_type]
    return KafkaError(code, message)
