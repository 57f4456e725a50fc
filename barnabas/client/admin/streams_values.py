"""Descriptions of streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.acl_values import AclOperation, operations_of
from barnabas.client.admin.group_values import GroupState
from barnabas.client.metadata import Node
from barnabas.protocol.messages import streams_group_describe as streams

Tasks = Mapping[str, tuple[int, ...]]
"""Subtopology to the partitions of its tasks."""


@dataclass(frozen=True, slots=True)
class StreamsTopicInfo:
    """An internal topic of the group. Without a partition count it has as many as its source."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StreamsSubtopology:
    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[StreamsTopicInfo, ...]
    repartition_source_topics: tuple[StreamsTopicInfo, ...]


@dataclass(frozen=True, slots=True)
class StreamsAssignment:
    active_tasks: Tasks
    standby_tasks: Tasks
    warmup_tasks: Tasks


@dataclass(frozen=True, slots=True)
class StreamsMemberDescription:
    member_id: str
    member_epoch: int
    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    topology_epoch: int
    process_id: str
    user_endpoint: tuple[str, int] | None
    client_tags: Mapping[str, str]
    task_offsets: Mapping[tuple[str, int], int]
    """(subtopology, partition) to the restored offset of its state."""
    task_end_offsets: Mapping[tuple[str, int], int]
    assignment: StreamsAssignment
    target_assignment: StreamsAssignment
    is_classic: bool


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    group_id: str
    state: GroupState
    group_epoch: int
    target_assignment_epoch: int
    topology_epoch: int | None
    """None until a member has sent the topology."""
    subtopologies: tuple[StreamsSubtopology, ...]
    members: tuple[StreamsMemberDescription, ...]
    coordinator: Node | None
    authorized_operations: tuple[AclOperation, ...] | None


def streams_group(it: streams.DescribedGroup, coordinator: Node | None) -> StreamsGroupDescription:
    topology = it.topology
    return StreamsGroupDescription(
        it.group_id,
        GroupState(it.group_state),
        it.group_epoch,
        it.assignment_epoch,
        None if topology is None else topology.epoch,
        () if topology is None else tuple(map(_subtopology, topology.subtopologies or ())),
        tuple(map(_member, it.members)),
        coordinator,
        operations_of(it.authorized_operations),
    )


def _subtopology(it: streams.Subtopology) -> StreamsSubtopology:
    return StreamsSubtopology(
        it.subtopology_id,
        tuple(it.source_topics),
        tuple(it.repartition_sink_topics),
        tuple(map(_topic, it.state_changelog_topics)),
        tuple(map(_topic, it.repartition_source_topics)),
    )


def _topic(it: streams.TopicInfo) -> StreamsTopicInfo:
    configs = {each.key: each.value for each in it.topic_configs}
    return StreamsTopicInfo(it.name, it.partitions, it.replication_factor, configs)


def _member(it: streams.Member) -> StreamsMemberDescription:
    return StreamsMemberDescription(
        it.member_id,
        it.member_epoch,
        it.instance_id,
        it.rack_id,
        it.client_id,
        it.client_host,
        it.topology_epoch,
        it.process_id,
        None if it.user_endpoint is None else (it.user_endpoint.host, it.user_endpoint.port),
        {tag.key: tag.value for tag in it.client_tags},
        {(each.subtopology_id, each.partition): each.offset for each in it.task_offsets},
        {(each.subtopology_id, each.partition): each.offset for each in it.task_end_offsets},
        _assignment(it.assignment),
        _assignment(it.target_assignment),
        it.is_classic,
    )


def _assignment(it: streams.Assignment) -> StreamsAssignment:
    return StreamsAssignment(_tasks(it.active_tasks), _tasks(it.standby_tasks), _tasks(it.warmup_tasks))


def _tasks(tasks: Iterable[streams.TaskIds]) -> Tasks:
    return {it.subtopology_id: tuple(sorted(it.partitions)) for it in tasks}
