"""Core: FindCoordinator requests and responses: the broker that coordinates one group or one transactional id."""

from __future__ import annotations

from enum import IntEnum

from barnabas.client.metadata import Node
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

STALE_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Error codes after which the coordinator has to be looked up again."""


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def lookup_request(kind: CoordinatorType, key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])


def coordinator_in(response: FindCoordinatorResponse, key: str) -> Node | ErrorCode:
    """The coordinator of `key`, or a retriable error code. KafkaError if there will never be a coordinator (the key is
    invalid, or not authorized)."""
    for found in response.coordinators:
        if found.key != key:
            continue
        code = error_code(found.error_code)
        if code is ErrorCode.NONE:
            return Node(found.node_id, found.host, found.port)
        if not code.retriable and code not in STALE_COORDINATOR:
            raise KafkaError(code, found.error_message or f"the coordinator of {key}")
        return code
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
