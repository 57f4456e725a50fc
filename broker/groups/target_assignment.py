"""Core: the next target assignment of a consumer group or a share group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.broker.groups.assignors.assignor import Assign, GroupSpec, MemberSpec, Pace
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_member import ConsumerMember, Partitions
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.runtime.at_once import Stepwise

PARTITIONS_OF_A_MEMBER = 4
"""Partitions that cost an assignment as much as one member."""


class TargetAssignment(NamedTuple):
    """Target that a member is reconciled with."""

    epoch: int
    partitions: Partitions


def members_with(group: ConsumerGroup, member: ConsumerMember) -> dict[str, ConsumerMember]:
    """Members of the group once `member` is one: it replaces the one with the same group.instance.id."""
    members = {
        each.member_id: each
        for each in group.members.values()
        if member.instance_id is None or each.instance_id != member.instance_id
    }
    members[member.member_id] = member
    return members


def compute_targets(
    group: ConsumerGroup, members: Mapping[str, ConsumerMember], topics: TopicsImage, assign: Assign
) -> Stepwise[dict[str, Partitions]]:
    """Targets of these members by id. The group may change meanwhile, `members` must not."""
    ids: dict[frozenset[str], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    pace = Pace()
    for member_id, each in members.items():
        names = group.subscribed.topics_of(each)
        if names not in ids:
            ids[names] = topic_ids(names, topics)
        specs[member_id] = MemberSpec(each.instance_id, ids[names], group.target_of(each))
        if pace.is_full(1 + len(names)):
            yield
    counts: dict[bytes, int] = {}
    for found in ids.values():
        for topic_id in sorted(found):
            counts[topic_id] = len(topics.by_id[topic_id].partitions)
        if pace.is_full(1 + len(found)):
            yield
    return (yield from assign(GroupSpec(specs, counts)))


def partitions_of(topic_names: Iterable[str], topics: TopicsImage) -> int:
    """Number of partitions of those topics that exist."""
    return sum(len(topics.by_name[name].partitions) for name in topic_names if name in topics.by_name)


def changed_targets(
    known: Mapping[str, Partitions], targets: Mapping[str, Partitions]
) -> Stepwise[list[tuple[str, Partitions]]]:
    """Those that differ from the known ones, as `Computed` takes them."""
    changed = []
    pace = Pace()
    for member_id, target in targets.items():
        if known.get(member_id) != target:
            changed.append((member_id, target))
        if pace.is_full(1 + number_of(target)):
            yield
    return changed[::-1]


def number_of(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def topic_ids(names: frozenset[str], topics: TopicsImage) -> frozenset[bytes]:
    """Ids of those topics that exist."""
    return frozenset(topics.by_name[name].id for name in names if name in topics.by_name)
