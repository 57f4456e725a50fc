"""Core: streams groups as StreamsGroupDescribe shows them (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from barnabas.broker.groups.description import Description
from barnabas.broker.groups.streams.member import StreamsMember
from barnabas.broker.groups.streams.streams_group import NO_TASKS, StreamsGroup
from barnabas.broker.groups.streams.tasks import TaskSet, sorted_tasks
from barnabas.protocol.messages.group_log import StreamsGroupTopologyTopicInfo
from barnabas.protocol.messages.group_log import Subtopology as RecordedSubtopology
from barnabas.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

StreamsDescription = Description[DescribedGroup, Member | Subtopology]


def describe(group: StreamsGroup) -> StreamsDescription:
    """The subtopologies come before the members, one at a time."""
    topology = group.topology
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if topology is None else Topology(epoch=topology.epoch, subtopologies=[]),
    )
    return Description(described, _parts(group))


def _parts(group: StreamsGroup) -> Iterator[Member | Subtopology]:
    members, targets = list(group.members.values()), dict(group.targets)
    configured = group.configured
    # Until the topics are complete, the description shows the topology as it was sent.
    counts = configured.internal_partitions if configured is not None and configured.is_ready else {}
    subtopologies = () if group.topology is None else group.topology.subtopologies.values()
    return _described(subtopologies, counts, members, targets)


def _described(
    subtopologies: Iterable[RecordedSubtopology],
    counts: Mapping[str, int],
    members: Iterable[StreamsMember],
    targets: Mapping[str, TaskSet],
) -> Iterator[Member | Subtopology]:
    for subtopology in subtopologies:
        yield Subtopology(
            subtopology_id=subtopology.subtopology_id,
            source_topics=sorted(subtopology.source_topics),
            repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
            state_changelog_topics=_topics(subtopology.state_changelog_topics, counts),
            repartition_source_topics=_topics(subtopology.repartition_source_topics, counts),
        )
    for member in members:
        yield _member(member, targets.get(member.member_id, NO_TASKS))


def _topics(infos: Iterable[StreamsGroupTopologyTopicInfo], counts: Mapping[str, int]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=info.name,
            partitions=info.partitions or counts.get(info.name, 0),
            replication_factor=info.replication_factor,
            topic_configs=[KeyValue(key=it.key, value=it.value) for it in info.topic_configs],
        )
        for info in sorted(infos, key=lambda it: it.name)
    ]


def _member(member: StreamsMember, target: TaskSet) -> Member:
    endpoint = member.endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        assignment=_assignment(member.assigned.without_epochs()),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: TaskSet) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=it, partitions=partitions) for it, partitions in sorted_tasks(tasks)]
