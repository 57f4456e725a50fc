"""Core: members of a consumer group as ConsumerGroupDescribe shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.groups.consumer_member import (
    ConsumerMember,
    Partitions,
)
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.protocol.messages.consumer_group_describe import Assignment, Member, TopicPartitions


def described_member(member: ConsumerMember, target: Partitions, topics: TopicsImage) -> Member:
    held: dict[bytes, list[int]] = {}
    for owned in (member.assigned, member.revoking):
        for topic_id, partitions in owned.items():
            held.setdefault(topic_id, []).extend(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_pattern,
        assignment=described_assignment(held, topics),
        target_assignment=described_assignment(target, topics),
        member_type=0 if member.is_classic else 1,
    )


def described_assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicsImage) -> Assignment:
    """Deleted topics are left out, because their names are unknown."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topics.by_id[topic_id].name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in topics.by_id
        ]
    )
