"""Limits of one request to the controller: its changes are written as one atomic batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from barnabas.kraft.controller.state import MAX_RECORDS_PER_OPERATION, Pace, Steps
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.schema import Message

MAX_LISTED = 1000
"""Listeners, features or log directories that a node may register."""
COUNTED_PER_ITEM = 100
"""Topics or resources that are counted in the time of an item."""


def _partitions(topics: Any) -> Iterator[int]:
    return (max(1, len(topic.partitions)) for topic in topics or ())


def _configs(request: Any) -> Iterator[int]:
    return (max(1, len(resource.configs)) for resource in request.resources)


_COUNTS: dict[int, Callable[[Any], Iterator[int]]] = {
    ApiKey.CREATE_TOPICS: lambda request: (1 + len(topic.configs) for topic in request.topics),
    ApiKey.DELETE_TOPICS: lambda request: iter((len(request.topics), len(request.topic_names))),
    ApiKey.CREATE_PARTITIONS: lambda request: iter((len(request.topics),)),
    ApiKey.ELECT_LEADERS: lambda request: _partitions(request.topic_partitions),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda request: _partitions(request.topics),
    ApiKey.CREATE_ACLS: lambda request: iter((len(request.creations),)),
    ApiKey.DELETE_ACLS: lambda request: iter((len(request.filters),)),
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda request: iter((len(request.deletions), len(request.upsertions))),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda request: (max(1, len(it.ops), len(it.entity)) for it in request.entries),
    ApiKey.CREATE_DELEGATION_TOKEN: lambda request: iter((len(request.renewers),)),
}
"""The topics, partitions, configs, users or quotas that a request of a client names; the sum is their number."""

_OTHERS = "topics, partitions or configs"
_NOUNS: dict[int, str] = {
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "credentials",
    ApiKey.ALTER_CLIENT_QUOTAS: "quotas",
    ApiKey.CREATE_DELEGATION_TOKEN: "renewers",
}


def count_named(request: Message, pace: Pace) -> Steps[int]:
    """The number of topics, partitions or configs that the request names. Raises KafkaError POLICY_VIOLATION for more
    than one operation may change, and INVALID_REGISTRATION for a registration that no node sends."""
    counts = _COUNTS.get(request.API_KEY)
    named = 0
    for index, count in enumerate(() if counts is None else counts(request), 1):
        named += count
        if named > MAX_RECORDS_PER_OPERATION:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the request names more than {MAX_RECORDS_PER_OPERATION} {_NOUNS.get(request.API_KEY, _OTHERS)}",
            )
        if index % COUNTED_PER_ITEM == 0 and pace.is_full():
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
