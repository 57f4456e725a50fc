"""DescribeCluster (60) and DescribeTopicPartitions (75), both answered from this broker's metadata image."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from barnabas.broker.apis.metadata import PARTITION_ITEMS, topic_name_is_legal
from barnabas.broker.apis.rights import may_on_topics, parted
from barnabas.broker.authorized_operations import cluster_operations, topic_operations
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.metadata_cache import INTERNAL_TOPICS, NO_LEADER, MetadataCache, node_of
from barnabas.kraft.metadata.image import TopicImage
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.broker_hosts import name_host
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps

ENDPOINT_TYPE_BROKERS = 1
SORTED_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    metadata: MetadataCache
    settings: CurrentSettings


def describe_cluster(ports: ClusterPorts, call: Call) -> None:
    request: DescribeClusterRequest = call.message
    response = DescribeClusterResponse(cluster_id=ports.metadata.cluster_id, endpoint_type=request.endpoint_type)
    if request.endpoint_type != ENDPOINT_TYPE_BROKERS:
        response.error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        response.error_message = "this is a broker; only controllers describe the controllers"
        if request.endpoint_type != 2:
            response.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            response.error_message = f"unknown endpoint type {request.endpoint_type}"
        call.answer(response)
        return
    listener_name = call.request.listener_name
    brokers = ports.metadata.image.cluster.brokers
    for broker_id in sorted(brokers):
        image = brokers[broker_id]
        node = node_of(image, listener_name)
        if node is None or (image.fenced and not request.include_fenced_brokers):
            continue
        node = ports.metadata.as_seen(node, call.request)
        described = DescribeClusterBroker(
            broker_id=broker_id, host=node.host, port=node.port, rack=node.rack, is_fenced=image.fenced
        )
        name_host(described, image.host)
        response.brokers.append(described)
    alive = ports.metadata.alive_nodes(listener_name)
    own_id = ports.settings().node_id
    response.controller_id = own_id if own_id in alive else next(iter(alive), NO_LEADER)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(call)
    call.answer(response)


def describe_topic_partitions(ports: ClusterPorts, call: Call) -> Steps:
    """Pages of at most max.request.partition.size.limit partitions, topics sorted by name (KIP-966)."""
    request: DescribeTopicPartitionsRequest = call.message
    response = DescribeTopicPartitionsResponse()
    cache = ports.metadata.snapshot()
    by_name = cache.image.topics.by_name
    meter = Meter(call)
    asked: dict[str, None] = {}
    for topic in request.topics:
        asked[topic.name] = None
        if meter.step_ends():
            yield None
    names = yield from _in_order(asked or by_name)
    if request.cursor is not None:
        cursor = request.cursor
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            for name in names if asked else ():
                response.topics.append(_failed_topic(name, ErrorCode.INVALID_REQUEST))
                meter.answer_grows()
                if meter.step_ends():
                    yield None
            call.answer(response)
            return
        names = names[bisect_left(names, cursor.topic_name) :]
    # Whether a topic exists that the client may not describe is not disclosed.
    names, hidden = yield from parted(names, may_on_topics(call, AclOperation.DESCRIBE), meter)
    first_partition = 0
    if request.cursor is not None and names[:1] == [request.cursor.topic_name]:
        first_partition = request.cursor.partition_index
    room = max(1, min(request.response_partition_limit, ports.settings().max_request_partition_size_limit))
    for name in names:
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        image = by_name.get(name)
        if image is None:
            legal = topic_name_is_legal(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            failed = _failed_topic(name, error)
            failed.topic_authorized_operations = topic_operations(call, name)
            response.topics.append(failed)
            meter.answer_grows()
            if meter.step_ends():
                yield None
            first_partition = 0
            continue
        indexes = [index for index in sorted(image.partitions) if index >= first_partition]
        described = _describe(image, call)
        response.topics.append(described)
        for index in indexes[:room]:
            described.partitions.append(_describe_partition(cache, image, index, call.request.listener_name))
            meter.answer_grows()
            if meter.step_ends(PARTITION_ITEMS):
                yield None
        meter.answer_grows()
        if meter.step_ends():
            yield None
        if len(indexes) > room:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[room])
            break
        room -= len(indexes)
        first_partition = 0
    if asked:
        for name in hidden:
            refused = DescribeTopicPartitionsResponseTopic(name=name, topic_id=ZERO_UUID)
            refused.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.topics.append(refused)
            meter.answer_grows()
            if meter.step_ends():
                yield None
    call.answer(response)


def _in_order(names: Iterable[str]) -> Generator[None, None, list[str]]:
    """The names, sorted in steps: the last one merges parts that are in order."""
    unsorted = list(names)
    merged: list[str] = []
    for start in range(0, len(unsorted), SORTED_AT_ONCE):
        merged += sorted(unsorted[start : start + SORTED_AT_ONCE])
        yield None
    merged.sort()
    return merged


def _failed_topic(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
    )


def _describe(topic: TopicImage, call: Call) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=topic_operations(call, topic.name),
    )


def _describe_partition(
    cache: MetadataCache, topic: TopicImage, index: int, listener_name: str
) -> DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[index]
    has_leader = partition.leader in cache.alive_nodes(listener_name)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=cache.offline_replicas(partition, listener_name),
    )
