"""Core: the records of streams groups in `__consumer_offsets` (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.coordinator.outcome import CoordinatorRecord
from barnabas.broker.groups.streams.member import StreamsMember
from barnabas.broker.groups.streams.tasks import ActiveTasks, TaskSet, sorted_tasks
from barnabas.protocol.messages.group_log import (
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberTaskIds,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)


def group_epoch(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> CoordinatorRecord:
    """`configs`: the assignor's configs, which the next coordinator compares with its own."""
    return CoordinatorRecord(
        StreamsGroupMetadataKey(group_id=group_id),
        StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_topology_epoch,
            last_assignment_configs=[LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)],
        ),
    )


def member_metadata(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    endpoint = member.endpoint
    return CoordinatorRecord(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        StreamsGroupMemberMetadataValue(
            instance_id=None,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[KeyValue(key=key, value=member.client_tags[key]) for key in sorted(member.client_tags)],
        ),
    )


def topology(group_id: str, value: StreamsGroupTopologyValue) -> CoordinatorRecord:
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), value)


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    key = StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return CoordinatorRecord(key, value)


def target_assignment(group_id: str, member_id: str, tasks: TaskSet) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberValue(
            active_tasks=_target_tasks(tasks.active),
            standby_tasks=_target_tasks(tasks.standby),
            warmup_tasks=_target_tasks(tasks.warmup),
        ),
    )


def current_assignment(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            active_tasks=_active_tasks(member.assigned.active),
            standby_tasks=_tasks(member.assigned.standby),
            warmup_tasks=_tasks(member.assigned.warmup),
            active_tasks_pending_revocation=_active_tasks(member.revoking.active),
            standby_tasks_pending_revocation=_tasks(member.revoking.standby),
            warmup_tasks_pending_revocation=_tasks(member.revoking.warmup),
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Tombstones of one member, in the order in which they can be replayed."""
    return [
        CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """Tombstones of a group without members."""
    return [
        CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), None),
    ]


def _target_tasks(tasks: Mapping[str, Iterable[int]]) -> list[StreamsGroupTargetAssignmentMemberTaskIds]:
    return [
        StreamsGroupTargetAssignmentMemberTaskIds(subtopology_id=subtopology_id, partitions=partitions)
        for subtopology_id, partitions in sorted_tasks(tasks)
    ]


def _active_tasks(tasks: ActiveTasks) -> list[StreamsGroupCurrentMemberAssignmentTaskIds]:
    return [
        StreamsGroupCurrentMemberAssignmentTaskIds(
            subtopology_id=subtopology_id,
            partitions=partitions,
            assignment_epochs=[tasks[subtopology_id][partition] for partition in partitions],
        )
        for subtopology_id, partitions in sorted_tasks(tasks)
    ]


def _tasks(tasks: Mapping[str, Iterable[int]]) -> list[StreamsGroupCurrentMemberAssignmentTaskIds]:
    return [
        StreamsGroupCurrentMemberAssignmentTaskIds(subtopology_id=subtopology_id, partitions=partitions)
        for subtopology_id, partitions in sorted_tasks(tasks)
    ]
