"""Limits of one request to the controller: its changes are written as one atomic batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.controller.state import MAX_RECORDS_PER_OPERATION
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.schema import Message

LARGE = 100
"""Things that a request names from which on its refusal is made away from the event loop."""

MAX_LISTED = 1000
"""Listeners, features or log directories that a node may register."""


def _partitions(topics: Any) -> int:
    return sum(max(1, len(topic.partitions)) for topic in topics or ())


def _configs(request: Any) -> int:
    return sum(max(1, len(resource.configs)) for resource in request.resources)


_COUNTS: dict[type[Message], Callable[[Any], int]] = {
    CreateTopicsRequest: lambda request: sum(1 + len(topic.configs) for topic in request.topics),
    DeleteTopicsRequest: lambda request: len(request.topics) + len(request.topic_names),
    CreatePartitionsRequest: lambda request: len(request.topics),
    ElectLeadersRequest: lambda request: _partitions(request.topic_partitions),
    AlterPartitionReassignmentsRequest: lambda request: _partitions(request.topics),
    AlterConfigsRequest: _configs,
    IncrementalAlterConfigsRequest: _configs,
}
"""The number of topics, partitions or keys that a request of a client names."""


def _named(request: Message) -> int:
    count = _COUNTS.get(type(request))
    return 0 if count is None else count(request)


def is_large(request: Message) -> bool:
    """Whether a refusal of the request is too long to be made in one step."""
    return _named(request) > LARGE


def check_named(request: Message) -> None:
    """Raises KafkaError POLICY_VIOLATION for a request that names more things than one operation may change, and
    INVALID_REGISTRATION for a registration that no node sends."""
    named = _named(request)
    if named > MAX_RECORDS_PER_OPERATION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the request names {named} topics, partitions or configs; at most {MAX_RECORDS_PER_OPERATION} are allowed",
        )
    if isinstance(request, BrokerRegistrationRequest):
        _check_listed(request.listeners, request.features, request.log_dirs)
    elif isinstance(request, ControllerRegistrationRequest):
        _check_listed(request.listeners, request.features)


def _check_listed(*lists: list[Any]) -> None:
    longest = max(map(len, lists))
    if longest > MAX_LISTED:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION,
            f"a node has at most {MAX_LISTED} listeners, features and log directories; got {longest} of one kind",
        )
