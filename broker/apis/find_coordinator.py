"""FindCoordinator (10): which broker is responsible for a group, a transactional id or a share partition.

It is the leader of the partition that the key hashes to. The internal topic is created by the first request; until the
partition has a leader the answer is COORDINATOR_NOT_AVAILABLE, and clients retry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.broker.coordinator.coordinator import LONGEST_KEY, partition_for, work_of_key
from barnabas.broker.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.metadata_cache import MetadataCache, Node
from barnabas.broker.shares.state import SharePartitionKey
from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps

BATCHED_FROM_VERSION = 4

SHARES_FROM_VERSION = 6

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types."""

_TOPICS = {GROUP: GROUP_TOPIC, TRANSACTION: TRANSACTION_TOPIC, SHARE: SHARE_TOPIC}
"""Internal topic by key type."""


@dataclass(frozen=True, slots=True)
class FindCoordinatorPorts:
    metadata: MetadataCache
    create_internal: Callable[[str], None]
    """Begins to create an internal topic."""
    may_have_lost: Callable[[str, int], bool]
    """True if this broker led this partition of an internal topic and others may lead it by now."""


def find_coordinator(ports: FindCoordinatorPorts, call: Call) -> Steps:
    request: FindCoordinatorRequest = call.message
    if call.version >= BATCHED_FROM_VERSION:
        found, meter = [], Meter(call)
        # A key named twice is answered once.
        for key in dict.fromkeys(request.coordinator_keys):
            found.append(_answer(ports, call, key))
            meter.answer_grows(1, len(key))
            if meter.step_ends(1 + work_of_key(key)):
                yield None
        call.answer(FindCoordinatorResponse(coordinators=found))
        return
    one = _answer(ports, call, request.key)
    call.answer(
        FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    )


_WITHOUT_WORDS = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
"""Errors that have a message only in a response for one key."""


def _answer(ports: FindCoordinatorPorts, call: Call, key: str) -> Coordinator:
    key_type = call.message.key_type
    try:
        if key_type == SHARE:
            _check_share_version(call)
        _check_right(call, key_type, key)
        if key_type == SHARE:
            _check_share_key(key)
        node = _coordinator(ports, call.request.listener_name, key_type, key)
        node = ports.metadata.as_seen(node, call.request)
    except KafkaError as error:
        refused = Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code)
        if call.version < BATCHED_FROM_VERSION or error.code not in _WITHOUT_WORDS:
            refused.error_message = error.message
        return refused
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)


def _check_right(call: Call, key_type: int, key: str) -> None:
    """Raises KafkaError if the client may not describe what it asks for."""
    if key_type == GROUP and not call.may(AclOperation.DESCRIBE, AclResourceType.GROUP, key):
        raise refusal_on(AclResourceType.GROUP)
    if key_type == TRANSACTION and not call.may(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, key):
        raise refusal_on(AclResourceType.TRANSACTIONAL_ID)
    if key_type == SHARE and not call.may_on_cluster(AclOperation.CLUSTER_ACTION):
        raise refusal_on(AclResourceType.CLUSTER)


def _check_share_version(call: Call) -> None:
    """Raises KafkaError."""
    if call.version < SHARES_FROM_VERSION:
        message = f"key type 2 (share partition) needs version {SHARES_FROM_VERSION} or later; got {call.version}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_share_key(key: str) -> None:
    """Raises KafkaError."""
    try:
        SharePartitionKey.parse(key)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _coordinator(ports: FindCoordinatorPorts, listener_name: str, key_type: int, key: str) -> Node:
    """Raises KafkaError."""
    topic = _TOPICS.get(key_type)
    if topic is None:
        message = f"key type must be 0 (group), 1 (transaction) or 2 (share partition); got {key_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if len(key) > LONGEST_KEY:
        message = f"the key must have at most {LONGEST_KEY} characters; got {len(key)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    image = ports.metadata.image.topics.by_name.get(topic)
    if image is None:
        ports.create_internal(topic)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} is being created")
    index = partition_for(key, len(image.partitions))
    placed = image.partitions.get(index)
    leader = -1 if placed is None else placed.leader
    if ports.may_have_lost(topic, index):
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "this broker has lost contact with the controllers and its followers; ask another broker",
        )
    node = ports.metadata.alive_nodes(listener_name).get(leader)
    if node is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{index} has no leader")
    return node
