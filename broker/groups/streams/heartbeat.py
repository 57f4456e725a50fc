"""Core: StreamsGroupHeartbeat requests: their validity, the member that they describe, and answers (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from barnabas.broker.groups.consumer_member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.limits import MOST_MEMBER_BYTES, MOST_OWNED_PARTITIONS
from barnabas.broker.groups.streams.configured_topology import ConfiguredSubtopology
from barnabas.broker.groups.streams.member import Endpoint, StreamsMember
from barnabas.broker.groups.streams.tasks import TaskSet, sorted_tasks, tasks_of
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_topics import CreatableTopic
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)


class HeartbeatResult(NamedTuple):
    """Answer to a heartbeat, and internal topics to be created on behalf of the member."""

    response: StreamsGroupHeartbeatResponse
    missing: tuple[CreatableTopic, ...] = ()


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises KafkaError INVALID_REQUEST."""
    message = _unsupported(request) or _invalid(request) or _too_large(request)
    if message is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _unsupported(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Uses of the protocol that Kafka 4.3 refuses, too."""
    if request.instance_id is not None:
        return "Static membership is not yet supported."
    if request.task_offsets is not None:
        return "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        return "TaskEndOffsets are not supported yet."
    if request.warmup_tasks:
        return "WarmupTasks are not supported yet."
    if request.topology is not None and any(it.source_topic_regex for it in request.topology.subtopologies):
        return "Regular expressions for source topics are not supported yet."
    return None


def _invalid(request: StreamsGroupHeartbeatRequest) -> str | None:
    for text, name in ((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")):
        if text is not None and not text.strip():
            return f"{name} can't be empty."
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        for listed, name in zip(lists, ("ActiveTasks", "StandbyTasks", "WarmupTasks"), strict=True):
            if listed:
                return f"{name} must be empty when (re-)joining."
        if request.topology is None:
            return "Topology must be non-null when (re-)joining."
    elif epoch == STATIC_LEAVE_EPOCH:
        return "InstanceId can't be null."
    elif epoch < STATIC_LEAVE_EPOCH:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    if any(it is not None for it in lists) and any(it is None for it in lists):
        return "If one task-type is non-null, all must be non-null."
    if epoch != JOIN_EPOCH and request.topology is not None:
        return "Topology can only be provided when (re-)joining."
    if request.rebalance_timeout_ms < -1:
        return f"RebalanceTimeoutMs must not be negative; got {request.rebalance_timeout_ms}."
    return None


def _too_large(request: StreamsGroupHeartbeatRequest) -> str | None:
    """A heartbeat is decided in one step of the event loop."""
    listed = [*(request.active_tasks or ()), *(request.standby_tasks or ())]
    if sum(1 + len(it.partitions) for it in listed) > MOST_OWNED_PARTITIONS:
        return f"A member must report at most {MOST_OWNED_PARTITIONS} tasks."
    size = sum(len(tag.key) + len(tag.value) for tag in request.client_tags or ())
    size += len(request.process_id or "") + len(request.rack_id or "") + len(request.member_id)
    size += 0 if request.user_endpoint is None else len(request.user_endpoint.host)
    if size > MOST_MEMBER_BYTES:
        return f"Client tags, rack, process and endpoint must have at most {MOST_MEMBER_BYTES} characters; got {size}."
    return None


def is_leaving(request: StreamsGroupHeartbeatRequest) -> bool:
    return request.member_epoch == LEAVE_EPOCH


def check_epoch(member: StreamsMember, epoch: int, reported: TaskSet | None) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    # The answer with the new epoch may have been lost. The member may then have nothing beyond its assignment.
    if epoch == member.previous_epoch and reported is not None and member.assigned.has_all_of(reported):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def reported_tasks(request: StreamsGroupHeartbeatRequest) -> TaskSet | None:
    """Tasks that the member reports to have; None if it does not report them."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TaskSet(tasks_of(request.active_tasks), tasks_of(request.standby_tasks), tasks_of(request.warmup_tasks))


def check_tasks(reported: TaskSet | None, subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    """Raises KafkaError INVALID_REQUEST if a reported task does not exist."""
    if reported is None:
        return
    for tasks in (reported.active, reported.standby, reported.warmup):
        for subtopology_id, partitions in tasks.items():
            if subtopology_id not in subtopologies:
                message = f"Subtopology {subtopology_id} does not exist in the topology."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            number = subtopologies[subtopology_id].number_of_tasks
            wrong = min(partitions) if min(partitions) < 0 else max(partitions)
            if not 0 <= wrong < number:
                message = (
                    f"Task {wrong} for subtopology {subtopology_id} is invalid. Number of tasks for this subtopology:"
                    f" {number}"
                )
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def with_request(member: StreamsMember, request: StreamsGroupHeartbeatRequest, client: Client) -> StreamsMember:
    """The member with the request's changes."""
    changes: dict[str, Any] = {"client_id": client.client_id, "client_host": client.host}
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.process_id is not None:
        changes["process_id"] = request.process_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        changes["topology_epoch"] = request.topology.epoch
    if request.user_endpoint is not None:
        changes["endpoint"] = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
    if request.client_tags is not None:
        changes["client_tags"] = {tag.key: tag.value for tag in request.client_tags}
    return replace(member, **changes)


def add_assignment(response: StreamsGroupHeartbeatResponse, member: StreamsMember) -> None:
    response.active_tasks = _task_ids(member.assigned.without_epochs().active)
    response.standby_tasks = _task_ids(member.assigned.standby)
    response.warmup_tasks = _task_ids(member.assigned.warmup)


def _task_ids(tasks: Mapping[str, frozenset[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=it, partitions=partitions) for it, partitions in sorted_tasks(tasks)]
