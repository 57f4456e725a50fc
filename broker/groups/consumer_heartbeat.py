"""Core: content of a ConsumerGroupHeartbeat: its validation, the member changes it requests, and the partitions it
reports.

A missing field means that the member's previous value still holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Partitions,
)
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.limits import MOST_OWNED_PARTITIONS, MOST_TOPICS
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

FIRST_VERSION_WITH_MEMBER_ID = 1
"""ConsumerGroupHeartbeat version in which clients generate their own member ids."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR for an assignor that is not in `assignors`."""
    epoch = request.member_epoch
    if version >= FIRST_VERSION_WITH_MEMBER_ID or epoch > 0 or epoch == LEAVE_EPOCH:
        _refuse_empty(request.member_id, "MemberId")
    _refuse_empty(request.group_id, "GroupId")
    _refuse_empty(request.instance_id, "InstanceId")
    _refuse_empty(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
    _check_size(request)


def _check_size(request: ConsumerGroupHeartbeatRequest) -> None:
    owned = request.topic_partitions or ()
    _refuse_more(len(request.subscribed_topic_names or ()), MOST_TOPICS, "SubscribedTopicNames", "topics")
    _refuse_more(len(owned), MOST_TOPICS, "TopicPartitions", "topics")
    partitions = sum(len(topic.partitions) for topic in owned)
    _refuse_more(partitions, MOST_OWNED_PARTITIONS, "TopicPartitions", "partitions")


def _refuse_more(count: int, most: int, name: str, things: str) -> None:
    if count > most:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} must have at most {most} {things}; got {count}.")


def _refuse_empty(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


def check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH."""
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a greater member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    # The answer with the new epoch may have been lost. The member may then own nothing beyond its assignment.
    if epoch != member.previous_epoch or not _owns_at_most(request, member):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a smaller member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _owns_at_most(request: ConsumerGroupHeartbeatRequest, member: ConsumerMember) -> bool:
    if request.topic_partitions is None:
        return False
    return all(
        topic.topic_id in member.assigned and number in member.assigned[topic.topic_id]
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def with_request(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """The member with the request's changes."""
    changes: dict[str, object] = {"client_id": client.client_id, "client_host": client.host, "classic": None}
    for name, value in (
        ("instance_id", request.instance_id),
        ("rack_id", request.rack_id),
        ("server_assignor", request.server_assignor),
        ("topic_pattern", request.subscribed_topic_regex),
    ):
        if value is not None:
            changes[name] = value
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.subscribed_topic_names is not None:
        changes["topic_names"] = frozenset(request.subscribed_topic_names)
    return member.changed(**changes)


def reported_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """Partitions that the member reports as owned; None if it does not report them."""
    if request.topic_partitions is None:
        return None
    reported: dict[bytes, set[int]] = {}
    for topic in request.topic_partitions:
        reported.setdefault(topic.topic_id, set()).update(topic.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in reported.items()}


def is_full_request(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True if the request has all fields, as after a lost answer; the answer then repeats the assignment."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def assignment_of(member: ConsumerMember) -> Assignment:
    """The assignment in the form of the response."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(owned)) for topic_id, owned in member.assigned.items()
        ]
    )
