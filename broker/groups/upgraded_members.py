"""Core: the members of a classic group as members of the consumer group that replaces it (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.groups.assignors.assignor import Pace
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_member import ClassicMember, MemberProtocol
from barnabas.broker.groups.consumer_member import ConsumerMember, Partitions
from barnabas.broker.groups.conversions import MEMBER_ITEMS
from barnabas.broker.groups.limits import MOST_ELEMENTS_READ
from barnabas.broker.groups.target_assignment import number_of
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.protocol.embedded_consumer import read_assignment, read_subscription
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from barnabas.protocol.messages.group_log import ClassicMemberMetadata, ClassicProtocol
from barnabas.runtime.at_once import Stepwise


def upgraded_members(group: ClassicGroup, topics: TopicsImage) -> Stepwise[list[ConsumerMember]]:
    """Every member keeps its partitions. The group must not change between the steps. Raises MalformedMessage;
    KafkaError GROUP_ID_NOT_FOUND.
    """
    pace = Pace()
    members: list[ConsumerMember] = []
    subscriptions: dict[str, ConsumerProtocolSubscription] = {}
    taken: set[tuple[bytes, int]] = set()
    for member in group.members.values():
        subscription = subscriptions[member.member_id] = _subscription(group, member)
        upgraded = _upgraded(group, member, subscription, topics)
        _take(group, upgraded, taken)
        members.append(upgraded)
        if pace.is_full(MEMBER_ITEMS + len(subscription.topics) + sum(map(len, upgraded.assigned.values()))):
            yield
    return (yield from _with_unrevoked(members, subscriptions, taken, topics))


def _upgraded(
    group: ClassicGroup, member: ClassicMember, subscription: ConsumerProtocolSubscription, topics: TopicsImage
) -> ConsumerMember:
    """Raises MalformedMessage; KafkaError GROUP_ID_NOT_FOUND."""
    assigned: Partitions = {}
    if member.assignment:
        assignment = read_assignment(member.assignment, MOST_ELEMENTS_READ)
        if assignment.user_data:
            raise cannot_upgrade(group, "an unsupported custom assignor is in use, whose user data would be lost")
        assigned = partitions_by_id(assignment.assigned_partitions, topics)
    return ConsumerMember(
        member.member_id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client.client_id,
        client_host=member.client.host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        assigned={topic_id: dict.fromkeys(sorted(owned), group.generation) for topic_id, owned in assigned.items()},
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def _take(group: ClassicGroup, member: ConsumerMember, taken: set[tuple[bytes, int]]) -> None:
    """A classic group's leader may have assigned a partition twice. A consumer group cannot represent that."""
    for topic_id, owned in member.assigned.items():
        for number in owned:
            if (topic_id, number) in taken:
                raise cannot_upgrade(group, "its assignment has a partition of more than one member")
            taken.add((topic_id, number))


def _with_unrevoked(
    members: list[ConsumerMember],
    subscriptions: Mapping[str, ConsumerProtocolSubscription],
    taken: set[tuple[bytes, int]],
    topics: TopicsImage,
) -> Stepwise[list[ConsumerMember]]:
    """Add the partitions that cooperative members still own. A cooperative member keeps partitions outside its
    assignment until it rejoins without them; no other member gets them in that generation (KIP-429).
    """
    pace = Pace()
    by_id = {member.member_id: member for member in members}
    # If two members claim it, the one of the older generation has lost it since.
    for member_id in sorted(by_id, key=lambda each: -subscriptions[each].generation_id):
        member = by_id[member_id]
        reported = partitions_by_id(subscriptions[member_id].owned_partitions, topics)
        assigned = dict(member.assigned)
        for topic_id, numbers in reported.items():
            left = sorted(number for number in numbers if (topic_id, number) not in taken)
            if left:
                assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(left, member.epoch)}
                taken.update((topic_id, number) for number in left)
        if assigned != member.assigned:
            by_id[member_id] = member.changed(assigned=assigned)
        if pace.is_full(MEMBER_ITEMS + number_of(reported)):
            yield
    return list(by_id.values())


def partitions_by_id(
    named: Iterable[ConsumerProtocolAssignmentTopicPartition | ConsumerProtocolSubscriptionTopicPartition],
    topics: TopicsImage,
) -> dict[bytes, frozenset[int]]:
    """Topics that do not exist are left out."""
    found: dict[bytes, frozenset[int]] = {}
    for topic in named:
        image = topics.by_name.get(topic.topic)
        if image is not None and topic.partitions:
            found[image.id] = found.get(image.id, frozenset()) | frozenset(topic.partitions)
    return found


def classic_metadata(session_timeout_ms: int, protocols: Iterable[MemberProtocol]) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=each.name, metadata=each.metadata) for each in protocols],
    )


def cannot_upgrade(group: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    )


def _subscription(group: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    """Raises MalformedMessage."""
    # Before its first generation a group has no protocol; then each member's first choice counts.
    return read_subscription(member.metadata(group.protocol_name or member.protocols[0].name), MOST_ELEMENTS_READ)
