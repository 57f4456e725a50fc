"""Core: requests that need one right each, and the verdict of their responses about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.protocol.schema import Message

TOPIC_CONFIGS = 2
"""A resource type (ConfigResource.Type)."""
CONFIG, CONFIG_VALUE = "retention.ms", "1000000000"
WAIT_MS = 3_000
TRANSACTION_MS = 10_000
NAMED = 12
"""The last versions of Produce and Fetch with names of topics."""
GROUP, TRANSACTION = 0, 1
"""Key types of coordinators."""

_ELSEWHERE = (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_COORDINATED = (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""A broker looks at rights before it looks whether it coordinates."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One kind of request."""

    resource: str
    operation: str
    request: Callable[[str], Message]
    """Makes the request for a resource of that name."""
    code: Callable[[Any], int]
    """The error code of a response."""
    passed: tuple[ErrorCode, ...] = (ErrorCode.NONE,)
    """Error codes of those who have the right."""
    version: int | None = None
    forwarded: bool = False
    """The active controller decides, whichever broker is asked."""


def _produce(topic: str) -> Message:
    batch = build_batch([Record(0, 1_750_000_000_000, None, b"tried")])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=WAIT_MS, topic_data=[data])


def _fetch(topic: str) -> Message:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[partition])])


def _metadata(topic: str) -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


def _configs(topic: str) -> Message:
    asked = DescribeConfigsResource(resource_type=TOPIC_CONFIGS, resource_name=topic, configuration_keys=[CONFIG])
    return DescribeConfigsRequest(resources=[asked])


def _alter(topic: str) -> Message:
    config = AlterableConfig(name=CONFIG, value=CONFIG_VALUE)
    changed = AlterConfigsResource(resource_type=TOPIC_CONFIGS, resource_name=topic, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[changed])


def _find(key_type: int) -> Callable[[str], Message]:
    return lambda name: FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])


def _heartbeat(group: str) -> Message:
    return HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")


def _init_producer(transactional_id: str) -> Message:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_MS)


TRIALS = {
    "produce": Trial(
        "TOPIC",
        "WRITE",
        _produce,
        lambda answer: int(answer.responses[0].partition_responses[0].error_code),
        _ELSEWHERE,
        NAMED,
    ),
    "fetch": Trial(
        "TOPIC",
        "READ",
        _fetch,
        lambda answer: int(answer.error_code or answer.responses[0].partitions[0].error_code),
        _ELSEWHERE,
        NAMED,
    ),
    "metadata": Trial("TOPIC", "DESCRIBE", _metadata, lambda answer: int(answer.topics[0].error_code)),
    "configs": Trial("TOPIC", "DESCRIBE_CONFIGS", _configs, lambda answer: int(answer.results[0].error_code)),
    "alter": Trial(
        "TOPIC", "ALTER_CONFIGS", _alter, lambda answer: int(answer.responses[0].error_code), forwarded=True
    ),
    "find-group": Trial(
        "GROUP", "DESCRIBE", _find(GROUP), lambda answer: int(answer.coordinators[0].error_code), _COORDINATED
    ),
    "heartbeat": Trial(
        "GROUP",
        "READ",
        _heartbeat,
        lambda answer: int(answer.error_code),
        (*_COORDINATED, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ),
    "find-transaction": Trial(
        "TRANSACTIONAL_ID",
        "DESCRIBE",
        _find(TRANSACTION),
        lambda answer: int(answer.coordinators[0].error_code),
        _COORDINATED,
    ),
    "init-producer": Trial(
        "TRANSACTIONAL_ID",
        "WRITE",
        _init_producer,
        lambda answer: int(answer.error_code),
        (*_COORDINATED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ),
}
"""By name."""
DENIALS = ("TopicAuthorizationException", "GroupAuthorizationException", "TransactionalIdAuthorizationException")
"""Kafka's names of the errors that deny one of these."""
