"""Metadata (3): topics, their leaders and the live brokers, from any broker.

Each topic has its own error. A missing topic is created if the client and the settings allow it (MB-09); the client
finds it when it retries.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache as cached
from functools import partial
from typing import Any, Protocol

from barnabas.broker.apis.rights import May, may_on_topics
from barnabas.broker.authorized_operations import cluster_operations, topic_operations
from barnabas.broker.metadata_cache import INTERNAL_TOPICS, NO_LEADER, MetadataCache, Node
from barnabas.kraft.metadata.image import PartitionImage
from barnabas.protocol.acls import AclOperation
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
from barnabas.runtime.request import Request
from barnabas.runtime.server import Steps
from barnabas.runtime.sorting import sorted_in_steps
from barnabas.runtime.world import Clock

TOPIC_IDS_FROM_VERSION = 12

FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6

PARTITION_ITEMS = 2
"""Items of work (see `Meter`) that a partition takes."""

_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class TopicCreation(Protocol):
    """The part of `AutoTopics` that is used here."""

    @property
    def is_enabled(self) -> bool: ...

    def create(self, names: Sequence[str], client: Request) -> None: ...


@dataclass(frozen=True, slots=True)
class MetadataPorts:
    node_id: int
    metadata: MetadataCache
    creation: TopicCreation
    """Creates missing topics."""
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
            for listed in cache.listed_nodes(listener_name, ports.monotonic.now_ms()).values()
            for node in (cache.as_seen(listed, call.request),)
        ],
        cluster_id=cache.cluster_id,
        controller_id=_controller_for_clients(ports.node_id, nodes),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(call)
    missing = yield from _describe_all(cache, call, response, _may_create(ports, call))
    if missing:
        ports.creation.create(missing, call.request)
    call.answer(response)


def _may_create(ports: MetadataPorts, call: Call) -> May | None:
    """True for a missing topic that the client may create; None if none is to be created."""
    request: MetadataRequest = call.message
    if not ports.creation.is_enabled or not (request.allow_auto_topic_creation or call.version < 4):
        return None
    may_create_topic = may_on_topics(call, AclOperation.CREATE)
    may_create_any = cached(partial(call.may_on_cluster, AclOperation.CREATE, audited=False))
    return lambda name: may_create_any() or may_create_topic(name)


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
    cache: MetadataCache, call: Call, response: MetadataResponse, may_create: May | None
) -> Generator[Any, Any, Sequence[str]]:
    """Add the requested topics, one at a time, and those that are refused behind the others. Returns the missing ones
    that are to be created."""
    request: MetadataRequest = call.message
    meter = Meter(call)
    topics = cache.image.topics
    # Version 0 has no null array: there an empty one asks for all.
    every = request.topics is None or (call.version == 0 and not request.topics)
    may_describe = may_on_topics(call, AclOperation.DESCRIBE, audited=not every)
    refused: list[MetadataResponseTopic] = []
    if every:
        names = yield from sorted_in_steps(topics.by_name)
        asked: Iterable[MetadataRequestTopic] = (MetadataRequestTopic(name=name) for name in names)
    else:
        asked = request.topics or ()
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
        name = topic.name or "" if image is None else image.name
        if not (by_id and image is None) and not may_describe(name):
            # Whether the topic exists is not disclosed.
            if not every:
                refused.append(_refused(None if by_id else name, topic.topic_id if by_id else ZERO_UUID))
                meter.answer_grows()
            continue
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
        elif may_create is not None and not may_create(name):
            refused.append(_failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, ZERO_UUID))
            meter.answer_grows()
            continue
        else:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not topic_name_is_legal(name):
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif may_create is not None:
                to_create.append(name)
            described = _failed(error, name, ZERO_UUID)
        if request.include_topic_authorized_operations and described.name is not None:
            described.topic_authorized_operations = topic_operations(call, described.name)
        response.topics.append(described)
        meter.answer_grows()
    response.topics += refused
    return to_create


def _refused(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    """A topic that the client may not describe."""
    return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id)


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
