"""The state in which the rows of the authorization matrix are sent, made by a super user on any cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from barnabas.protocol.acls import AclPermissionType, PatternType
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from barnabas.protocol.schema import Message
from tests.broker.authorization.rows import Ids, Right, cases, rights_in

UNKNOWN_TOPIC_ID = bytes(range(16))
ACLS_AT_ONCE = 200

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "auto.create.topics.enable": "true",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # The member of group m sends one heartbeat.
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "3600000",
    "group.share.assignment.interval.ms": "0",
    "group.streams.max.session.timeout.ms": "3600000",
    "group.streams.session.timeout.ms": "3600000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
}

Asking = Generator[tuple[Message, int], Any, Any]
"""Yields requests, each with its version; expects the answers."""


def preparing() -> Generator[tuple[Message, int], Any, Ids]:
    """Make the state. Returns the ids of its topics."""
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "tu"]
    yield CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7
    known = [MetadataRequestTopic(name=name) for name in "tu"]
    answer = yield from _until(MetadataRequest(topics=known), 12, lambda it: all(t.partitions for t in it.topics))
    ids = {topic.name: bytes(topic.topic_id) for topic in answer.topics} | {"w": UNKNOWN_TOPIC_ID}
    for kind, key in ((0, "g"), (1, "x")):
        found = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        yield from _until(found, 4, lambda it: it.coordinators[0].error_code == 0)
    offsets = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    for group_id in "gh":
        committed = [OffsetCommitRequestTopic(name=name, partitions=offsets) for name in "tu"]
        commit = OffsetCommitRequest(group_id=group_id, topics=committed)
        yield from _until(commit, 9, lambda it: it.topics[0].partitions[0].error_code == 0)
    joining = ConsumerGroupHeartbeatRequest(
        group_id="m",
        member_id="member",
        rebalance_timeout_ms=3_600_000,
        subscribed_topic_names=["t", "u"],
        topic_partitions=[],
    )
    yield from _until(joining, 1, lambda it: it.error_code == 0)
    for group_id in "es":
        sharing = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id="sharer", subscribed_topic_names=["t", "u"], member_epoch=0
        )
        yield from _until(sharing, 1, lambda it: it.assignment and len(it.assignment.topic_partitions) == 2)
    leaving = ShareGroupHeartbeatRequest(group_id="e", member_id="sharer", member_epoch=-1)
    yield from _until(leaving, 1, lambda it: it.error_code == 0)
    streaming = StreamsGroupHeartbeatRequest(
        group_id="k",
        member_id="streamer",
        rebalance_timeout_ms=3_600_000,
        process_id="process",
        topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["t", "u"])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    yield from _until(streaming, 0, lambda it: it.error_code == 0 and it.active_tasks)
    opened = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    yield from _until(opened, 4, lambda it: it.error_code == 0)
    return ids


def _until(request: Message, version: int, holds: Any) -> Asking:
    while True:
        answer = yield request, version
        if holds(answer):
            return answer


def creation(user: str, right: Right) -> AclCreation:
    return AclCreation(
        resource_type=right.resource_type,
        resource_name=right.name,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=right.operation,
        permission_type=AclPermissionType.ALLOW,
    )


def grants() -> Iterator[CreateAclsRequest]:
    """The access control lists of all cases."""
    creations = [creation(user, right) for user, _, case in cases() for right in rights_in(case)]
    for start in range(0, len(creations), ACLS_AT_ONCE):
        yield CreateAclsRequest(creations=creations[start : start + ACLS_AT_ONCE])
