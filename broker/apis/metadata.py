"""Metadata (3): topics, their leaders and the live brokers, from any broker.

Each topic has its own error. A missing topic is created if the client and the settings allow it (MB-09); the client
finds it when it retries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.broker.metadata_cache import INTERNAL_TOPICS, NO_LEADER, MetadataCache, Node
from barnabas.kraft.metadata.image import PartitionImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps
from barnabas.runtime.world import Clock

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""Every AclOperation that topics know, as a bit field: all are allowed without an authorizer (KIP-430)."""

CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

TOPIC_IDS_FROM_VERSION = 12

FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6

PARTITION_ITEMS = 2
"""Items of work (see `Meter`) that a partition takes."""

_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class MetadataPorts:
    node_id: int
    metadata: MetadataCache
    create_topics: Callable[[Sequence[str]], None]
    """Begins to create missing topics."""
    monotonic: Clock


def topic_name_is_legal(name: str) -> bool:
    """1-249 of [a-zA-Z0-9._-], and neither "." nor ".."."""
    return name not in (".", "..") and _LEGAL_TOPIC_NAME.fullmatch(name) is not None


def metadata(ports: MetadataPorts, call: Call) -> Steps:
    request: MetadataRequest = call.message
    if call.version < TOPIC_IDS_FROM_VERSION and not (yield from _names_all(request)):
        # Versions 10 and 11 have the field for ids but do not allow its use: every topic is refused.
        meter, refused = Meter(call), []
        for topic in request.topics or []:
            refused.append(_failed(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id))
            meter.answer_grows()
            if meter.step_ends():
                yield None
        call.answer(MetadataResponse(topics=refused))
        return
    listener_name = call.request.listener_name
    cache = ports.metadata.snapshot()
    nodes = cache.alive_nodes(listener_name)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in cache.listed_nodes(listener_name, ports.monotonic.now_ms()).values()
        ],
        cluster_id=cache.cluster_id,
        controller_id=_controller_for_clients(ports.node_id, nodes),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    missing = yield from _describe_all(cache, call, response)
    ports.create_topics(missing)
    call.answer(response)


def _names_all(request: MetadataRequest) -> Generator[Any, Any, bool]:
    """True if no topic is requested by id."""
    meter = Meter()
    for topic in request.topics or []:
        if topic.name is None or topic.topic_id != ZERO_UUID:
            return False
        if meter.step_ends():
            yield None
    return True


def _controller_for_clients(own_id: int, nodes: dict[int, Node]) -> int:
    """Clients send administrative requests to "the controller"; any live broker forwards them, so name this one."""
    return own_id if own_id in nodes else next(iter(nodes), NO_LEADER)


def _describe_all(
    cache: MetadataCache, call: Call, response: MetadataResponse
) -> Generator[Any, Any, Sequence[str]]:
    """Add the requested topics, one at a time. Returns the missing ones that are to be created."""
    request: MetadataRequest = call.message
    meter = Meter(call)
    topics = cache.image.topics
    # Version 0 has no null array: there an empty one asks for all.
    if request.topics is None or (call.version == 0 and not request.topics):
        asked: Iterable[MetadataRequestTopic] = (MetadataRequestTopic(name=name) for name in sorted(topics.by_name))
    else:
        asked = request.topics
    to_create: list[str] = []
    answered: set[str | bytes] = set()
    for topic in asked:
        if meter.step_ends():
            yield None
        by_id = topic.name is None or topic.topic_id != ZERO_UUID
        key = topic.topic_id if by_id else topic.name or ""
        if key in answered:
            continue  # A topic named twice is answered once: the response is much longer than the request.
        answered.add(key)
        image = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name or "")
        if image is not None:
            described = MetadataResponseTopic(
                name=image.name, topic_id=image.id, is_internal=image.name in INTERNAL_TOPICS
            )
            for index in sorted(image.partitions):
                described.partitions.append(_describe_partition(cache, image.partitions[index], index, call))
                meter.answer_grows()
                if meter.step_ends(PARTITION_ITEMS):
                    yield None
        elif by_id:
            described = _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, topic.topic_id)
        else:
            name = topic.name or ""
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not topic_name_is_legal(name):
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif request.allow_auto_topic_creation or call.version < 4:
                to_create.append(name)
            described = _failed(error, name, ZERO_UUID)
        if request.include_topic_authorized_operations:
            described.topic_authorized_operations = TOPIC_OPERATIONS
        response.topics.append(described)
        meter.answer_grows()
    return to_create


def _failed(error: ErrorCode, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _describe_partition(
    cache: MetadataCache, partition: PartitionImage, index: int, call: Call
) -> MetadataResponsePartition:
    version, listener_name = call.version, call.request.listener_name
    nodes = cache.alive_nodes(listener_name)
    leader_id = partition.leader
    error = ErrorCode.NONE
    if leader_id not in nodes:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        if cache.is_alive(leader_id) and version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND:
            error = ErrorCode.LISTENER_NOT_FOUND
        leader_id = NO_LEADER
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version == 0:
        # Clients of version 0 fail on ids of brokers that are not in the response.
        replicas = [replica for replica in replicas if replica in nodes]
        isr = [replica for replica in isr if replica in nodes]
        missing = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
        if error == ErrorCode.NONE and missing:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=cache.offline_replicas(partition, listener_name),
    )
