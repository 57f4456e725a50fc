"""Core: the next target assignment of a consumer group, and the records of its changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.broker.coordinator.outcome import CoordinatorRecord
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.assignors.assignor import Assign, GroupSpec, MemberSpec
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_member import ConsumerMember, Partitions
from barnabas.kraft.metadata.image import TopicsImage


class TargetAssignment(NamedTuple):
    """Target that a member is reconciled with."""

    epoch: int
    partitions: Partitions


def compute_targets(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicsImage, assign: Assign
) -> dict[str, Partitions]:
    """Targets by member id. `member` is its future value and replaces the one with the same group.instance.id."""
    members = {
        each.member_id: each
        for each in group.members.values()
        if member.instance_id is None or each.instance_id != member.instance_id
    }
    members[member.member_id] = member
    ids: dict[frozenset[str], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, each in members.items():
        names = group.subscribed.topics_of(each)
        if names not in ids:
            ids[names] = topic_ids(names, topics)
        specs[member_id] = MemberSpec(each.instance_id, ids[names], group.target_of(each))
    counts = {topic_id: len(topics.by_id[topic_id].partitions) for found in ids.values() for topic_id in sorted(found)}
    return assign(GroupSpec(specs, counts))


def target_records(
    group: ConsumerGroup, targets: Mapping[str, Partitions], epoch: int, timestamp_ms: int
) -> list[CoordinatorRecord]:
    """Records of changed targets, followed by the epoch that makes them take effect."""
    changed = [
        records.target_assignment(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    return [*changed, records.target_assignment_epoch(group.group_id, epoch, timestamp_ms)]


def topic_ids(names: frozenset[str], topics: TopicsImage) -> frozenset[bytes]:
    """Ids of those topics that exist."""
    return frozenset(topics.by_name[name].id for name in names if name in topics.by_name)
