"""Groups of all types, with the same fields: classic, consumer (KIP-848), share (KIP-932), streams (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import (
        Admin,
        GroupDescription,
        GroupType,
        Results,
        ShareGroupDescription,
        StreamsGroupDescription,
        StreamsMemberDescription,
    )
    from barnabas.client.cluster import TopicPartition

Tasks = Mapping[str, Sequence[int]]
"""Partitions by subtopology."""


@dataclass(frozen=True, slots=True)
class MemberView:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    """For a member of a streams group: what its active tasks read."""
    epoch: int | None = None
    process_id: str | None = None
    tasks: Mapping[str, Tasks] = field(default_factory=dict)
    """active, standby and warmup tasks; empty unless the group is a streams group."""


@dataclass(frozen=True, slots=True)
class GroupView:
    group_id: str
    type: GroupType
    state: str
    coordinator: int | None
    assignor: str | None
    epoch: int | None
    target_epoch: int | None
    members: tuple[MemberView, ...]
    topology_epoch: int | None = None

    @property
    def is_share(self) -> bool:
        return self.type.value == "share"

    @property
    def is_streams(self) -> bool:
        return self.type.value == "streams"

    def owners(self) -> dict[TopicPartition, MemberView]:
        """Empty for a share group, whose members read the same partitions."""
        if self.is_share:
            return {}
        return {partition: member for member in self.members for partition in member.assignment}

    def assigned(self) -> list[TopicPartition]:
        return [partition for member in self.members for partition in member.assignment]


async def describe_groups(admin: Admin, ids: Sequence[str]) -> Results[str, GroupView]:
    """By id. GROUP_ID_NOT_FOUND."""
    from barnabas.client.admin import Results

    described = await admin.describe_groups(ids)
    return Results({name: it if isinstance(it, KafkaError) else _view(it) for name, it in described.outcomes.items()})


async def is_share_group(admin: Admin, group: str) -> bool:
    """Raises `KafkaError`, but not if there is no such group."""
    outcome = (await describe_groups(admin, [group])).outcomes[group]
    if isinstance(outcome, KafkaError):
        if outcome.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise outcome
        return False
    return outcome.is_share


def tasks_text(tasks: Tasks) -> str:
    """`0:0,1 1:0`."""
    return " ".join(f"{name}:{','.join(map(str, partitions))}" for name, partitions in sorted(tasks.items()))


def _view(group: GroupDescription) -> GroupView:
    from barnabas.client.admin import ClassicGroupDescription, ConsumerGroupDescription, GroupType
    from barnabas.client.admin import ShareGroupDescription as Share

    coordinator = None if group.coordinator is None else group.coordinator.node_id
    if isinstance(group, ConsumerGroupDescription):
        members = tuple(
            MemberView(it.member_id, it.client_id, it.host, it.group_instance_id, tuple(it.assignment), it.member_epoch)
            for it in group.members
        )
        epochs = (group.group_epoch, group.target_assignment_epoch)
        return GroupView(
            group.group_id, group.type, group.state, coordinator, group.partition_assignor, *epochs, members
        )
    if isinstance(group, ClassicGroupDescription):
        members = tuple(MemberView(it.member_id, it.client_id, it.host, it.group_instance_id) for it in group.members)
        kind, assignor = GroupType.CLASSIC, group.protocol_data
        return GroupView(group.group_id, kind, group.state, coordinator, assignor, None, None, members)
    if isinstance(group, Share):
        return _share(group, coordinator)
    return _streams(group, coordinator)


def _share(group: ShareGroupDescription, coordinator: int | None) -> GroupView:
    from barnabas.client.admin import GroupType

    members = tuple(
        MemberView(it.member_id, it.client_id, it.host, None, tuple(it.assignment), it.member_epoch)
        for it in group.members
    )
    return GroupView(
        group.group_id,
        GroupType.SHARE,
        group.state,
        coordinator,
        group.partition_assignor,
        group.group_epoch,
        group.target_assignment_epoch,
        members,
    )


def _streams(group: StreamsGroupDescription, coordinator: int | None) -> GroupView:
    from barnabas.client.admin import GroupType

    sources = {
        it.subtopology_id: (*it.source_topics, *(topic.name for topic in it.repartition_source_topics))
        for it in group.subtopologies
    }
    return GroupView(
        group.group_id,
        GroupType.STREAMS,
        group.state,
        coordinator,
        None,
        group.group_epoch,
        group.target_assignment_epoch,
        tuple(_streams_member(it, sources) for it in group.members),
        group.topology_epoch,
    )


def _streams_member(it: StreamsMemberDescription, sources: Mapping[str, Sequence[str]]) -> MemberView:
    given = it.assignment
    return MemberView(
        it.member_id,
        it.client_id,
        it.host,
        it.group_instance_id,
        tuple(sorted(_read_by(given.active_tasks, sources))),
        it.member_epoch,
        it.process_id,
        {"active": given.active_tasks, "standby": given.standby_tasks, "warmup": given.warmup_tasks},
    )


def _read_by(tasks: Tasks, sources: Mapping[str, Sequence[str]]) -> Iterator[TopicPartition]:
    """A topic with fewer partitions than its subtopology has tasks is read by the first of them only."""
    from barnabas.client.cluster import TopicPartition

    for subtopology, partitions in tasks.items():
        for topic in sources.get(subtopology, ()):
            for partition in partitions:
                yield TopicPartition(topic, partition)


def member_json(member: MemberView) -> dict[str, Any]:
    found: dict[str, Any] = {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": [{"topic": each.topic, "partition": each.partition} for each in member.assignment],
    }
    if member.tasks:
        found |= {"process_id": member.process_id, "epoch": member.epoch, "tasks": member.tasks}
    return found
