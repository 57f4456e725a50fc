"""Limits of one request to the controller: its changes are written as one atomic batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from barnabas.kraft.controller.state import MAX_RECORDS_PER_OPERATION, Pace, Steps
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.messages.create_acls import CreateAclsRequest
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.schema import Message

MAX_LISTED = 1000
"""Listeners, features or log directories that a node may register."""
COUNTED_PER_ITEM = 100
"""Topics or resources that are counted in the time of an item."""


def _partitions(topics: Any) -> Iterator[int]:
    return (max(1, len(topic.partitions)) for topic in topics or ())


def _configs(request: Any) -> Iterator[int]:
    return (max(1, len(resource.configs)) for resource in request.resources)


_COUNTS: dict[type[Message], Callable[[Any], Iterator[int]]] = {
    CreateTopicsRequest: lambda request: (1 + len(topic.configs) for topic in request.topics),
    DeleteTopicsRequest: lambda request: iter((len(request.topics), len(request.topic_names))),
    CreatePartitionsRequest: lambda request: iter((len(request.topics),)),
    ElectLeadersRequest: lambda request: _partitions(request.topic_partitions),
    AlterPartitionReassignmentsRequest: lambda request: _partitions(request.topics),
    CreateAclsRequest: lambda request: iter((len(request.creations),)),
    DeleteAclsRequest: lambda request: iter((len(request.filters),)),
    AlterConfigsRequest: _configs,
    IncrementalAlterConfigsRequest: _configs,
    AlterUserScramCredentialsRequest: lambda request: iter((len(request.deletions), len(request.upsertions))),
    AlterClientQuotasRequest: lambda request: (max(1, len(it.ops), len(it.entity)) for it in request.entries),
    CreateDelegationTokenRequest: lambda request: iter((len(request.renewers),)),
}
"""The topics, partitions, configs, users or quotas that a request of a client names; the sum is their number."""

_OTHERS = "topics, partitions or configs"
_NOUNS: dict[type[Message], str] = {
    AlterUserScramCredentialsRequest: "credentials",
    AlterClientQuotasRequest: "quotas",
    CreateDelegationTokenRequest: "renewers",
}


def count_named(request: Message, pace: Pace) -> Steps[int]:
    """The number of topics, partitions or configs that the request names. Raises KafkaError POLICY_VIOLATION for more
    than one operation may change, and INVALID_REGISTRATION for a registration that no node sends."""
    counts = _COUNTS.get(type(request))
    named = 0
    for count in () if counts is None else counts(request):
        named += count
        if named > MAX_RECORDS_PER_OPERATION:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the request names more than {MAX_RECORDS_PER_OPERATION} {_NOUNS.get(type(request), _OTHERS)}",
            )
        if pace.is_full(per_item=COUNTED_PER_ITEM):
            yield None
    if isinstance(request, BrokerRegistrationRequest):
        _check_listed(request.listeners, request.features, request.log_dirs)
    elif isinstance(request, ControllerRegistrationRequest):
        _check_listed(request.listeners, request.features)
    return named


def _check_listed(*lists: list[Any]) -> None:
    longest = max(map(len, lists))
    if longest > MAX_LISTED:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION,
            f"a node has at most {MAX_LISTED} listeners, features and log directories; got {longest} of one kind",
        )
