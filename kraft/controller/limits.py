"""How much one request may ask of the controller, which decides on it in one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.controller.state import MAX_RECORDS_PER_OPERATION
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.schema import Message


def _partitions(topics: Any) -> int:
    return sum(max(1, len(topic.partitions)) for topic in topics or ())


def _configs(request: Any) -> int:
    return sum(max(1, len(resource.configs)) for resource in request.resources)


_COUNTS: dict[type[Message], Callable[[Any], int]] = {
    CreateTopicsRequest: lambda request: len(request.topics),
    DeleteTopicsRequest: lambda request: len(request.topics) + len(request.topic_names),
    CreatePartitionsRequest: lambda request: len(request.topics),
    ElectLeadersRequest: lambda request: _partitions(request.topic_partitions),
    AlterPartitionReassignmentsRequest: lambda request: _partitions(request.topics),
    AlterConfigsRequest: _configs,
    IncrementalAlterConfigsRequest: _configs,
}
"""The topics, partitions or keys that a request of a client names."""


def check_named(request: Message) -> None:
    """Raises KafkaError POLICY_VIOLATION for a request that names more things than one operation may change."""
    count = _COUNTS.get(type(request))
    named = 0 if count is None else count(request)
    if named > MAX_RECORDS_PER_OPERATION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the request names {named} things, more than the {MAX_RECORDS_PER_OPERATION} of one operation",
        )
