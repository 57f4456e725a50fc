"""Metadata (3): any broker tells of all topics, their leaders and the live brokers.

Each topic has its own error; a topic that is not there is created on the way where clients and settings allow it
(MB-09), and the client asks again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.metadata_cache import INTERNAL_TOPICS, NO_LEADER, Node
from kraft.metadata.image import PartitionImage, TopicImage
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.primitives import ZERO_UUID
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""Every AclOperation that topics know, as a bit field: what everybody may do where nothing is forbidden (KIP-430)."""

CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

TOPIC_IDS_FROM_VERSION = 12

FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6

_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def topic_name_is_legal(name: str) -> bool:
    """1-249 of [a-zA-Z0-9._-], and neither "." nor ".."."""
    return name not in (".", "..") and _LEGAL_TOPIC_NAME.fullmatch(name) is not None


def metadata(broker: BrokerServices, call: Call) -> None:
    request: MetadataRequest = call.message
    if call.version < TOPIC_IDS_FROM_VERSION and (unknowable := _asked_by_id(request)):
        call.answer(MetadataResponse(topics=unknowable))
        return
    listener_name = call.request.listener_name
    nodes = broker.metadata.alive_nodes(listener_name)
    topics = list(_asked_topics(broker, request, call.version, nodes, listener_name))
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.metadata.listed_nodes(listener_name, broker.world.monotonic.now_ms()).values()
        ],
        cluster_id=broker.metadata.cluster_id,
        controller_id=_controller_for_clients(broker, nodes),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    call.answer(response)


def _asked_by_id(request: MetadataRequest) -> list[MetadataResponseTopic]:
    """A refusal of every topic, if any is asked for by its id: versions 10 and 11 have the field, but no such
    question.
    """
    topics = request.topics or []
    if all(topic.name is not None and topic.topic_id == ZERO_UUID for topic in topics):
        return []
    return [_failed(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in topics]


def _controller_for_clients(broker: BrokerServices, nodes: dict[int, Node]) -> int:
    """Clients send administrative requests to "the controller"; any live broker forwards them, so name this one."""
    own_id = broker.settings.node_id
    return own_id if own_id in nodes else next(iter(nodes), NO_LEADER)


def _asked_topics(
    broker: BrokerServices, request: MetadataRequest, version: int, nodes: dict[int, Node], listener_name: str
) -> Iterator[MetadataResponseTopic]:
    topics = broker.metadata.image.topics
    # Version 0 has no null array: there an empty one asks for all.
    if request.topics is None or (version == 0 and not request.topics):
        for name in sorted(topics.by_name):
            yield _describe(broker, topics.by_name[name], version, nodes, listener_name)
        return
    to_create: list[str] = []
    # Asked twice is answered once: an answer is much longer than its question.
    for asked in {(topic.topic_id, topic.name): topic for topic in request.topics}.values():
        if asked.name is None or asked.topic_id != ZERO_UUID:
            image = topics.by_id.get(asked.topic_id)
            if image is None:
                yield _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
                continue
        else:
            image = topics.by_name.get(asked.name)
            if image is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not topic_name_is_legal(asked.name):
                    error = ErrorCode.INVALID_TOPIC_EXCEPTION
                elif request.allow_auto_topic_creation or version < 4:
                    to_create.append(asked.name)
                yield _failed(error, asked.name, ZERO_UUID)
                continue
        yield _describe(broker, image, version, nodes, listener_name)
    broker.auto_topics.create(to_create)


def _failed(error: ErrorCode, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _describe(
    broker: BrokerServices, topic: TopicImage, version: int, nodes: dict[int, Node], listener_name: str
) -> MetadataResponseTopic:
    described = MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL_TOPICS
    )
    for index in sorted(topic.partitions):
        partition = _describe_partition(broker, topic.partitions[index], version, nodes)
        partition.partition_index = index
        partition.offline_replicas = broker.metadata.offline_replicas(topic.partitions[index], listener_name)
        described.partitions.append(partition)
    return described


def _describe_partition(
    broker: BrokerServices, partition: PartitionImage, version: int, nodes: dict[int, Node]
) -> MetadataResponsePartition:
    leader_id = partition.leader
    error = ErrorCode.NONE
    if leader_id not in nodes:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        if broker.metadata.is_alive(leader_id) and version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND:
            error = ErrorCode.LISTENER_NOT_FOUND
        leader_id = NO_LEADER
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version == 0:
        # Clients of the first version cannot bear ids of brokers that are not in the list.
        replicas = [replica for replica in replicas if replica in nodes]
        isr = [replica for replica in isr if replica in nodes]
        missing = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
        if error == ErrorCode.NONE and missing:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
    )
