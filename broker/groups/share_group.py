"""Core: one share group (KIP-932): its members, epochs, target assignment, and the states of its share partitions.

All of it follows from the log: only `replay` changes it, except for one soft deadline. Decisions are made in
`share_groups.py`. Unlike in a consumer group, a partition may have many members, and nobody has to release it first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now
from barnabas.broker.groups import share_records as records
from barnabas.broker.groups.consumer_member import Partitions
from barnabas.broker.groups.description import Description
from barnabas.broker.groups.epoch_group import EpochGroup
from barnabas.broker.groups.group import Commit, GroupType
from barnabas.broker.groups.group_keys import ShareGroupKey
from barnabas.broker.groups.group_memory import MEMBER_BYTES, size_of_names
from barnabas.broker.groups.group_subscriptions import count
from barnabas.broker.groups.share_member import ShareMember
from barnabas.broker.groups.share_topics import ShareTopics, TopicStates
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
)
from barnabas.protocol.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from barnabas.protocol.schema import Message

ASSIGNOR_NAME = "simple"
_NO_PARTITIONS: Partitions = {}


class ShareGroupState(Enum):
    """The value is the name in ListGroups and ShareGroupDescribe."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted."""


class ShareGroup(EpochGroup[ShareMember, Partitions]):
    """Implements `broker.groups.group.Group`."""

    type = GroupType.SHARE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topics = ShareTopics()
        self._subscribed: Counter[str] = Counter()
        """Members by topic name."""
        self._owners: dict[bytes, Counter[int]] = {}
        """Members with a partition in their target, by topic id and partition."""

    # -- the Group protocol

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def state_name(self) -> str:
        return self.state.value

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._subscribed

    def check_commit(self, commit: Commit, now: Now) -> None:
        raise self._not_a_consumer_group()

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise self._not_a_consumer_group()

    def _not_a_consumer_group(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def tombstones(self) -> list[CoordinatorRecord]:
        of_members = [it for member_id in self.members for it in records.member_tombstones(self.group_id, member_id)]
        return [*of_members, *records.group_tombstones(self.group_id)]

    # -- members

    def topics_with(self, after: ShareMember) -> list[str]:
        """Topics subscribed by the group once the member is `after`, in order."""
        before = self.members.get(after.member_id)
        left = set(self._subscribed) if before is None else self._topics_without(before)
        return sorted(left | after.topic_names)

    def topics_without(self, leaving: ShareMember) -> list[str]:
        return sorted(self._topics_without(leaving))

    def _topics_without(self, leaving: ShareMember) -> set[str]:
        only = {name for name in leaving.topic_names if self._subscribed[name] == 1}
        return set(self._subscribed) - only

    @property
    def subscribed(self) -> Iterator[str]:
        """Names of the topics that members subscribe to."""
        return iter(self._subscribed)

    # -- assignments

    def has_unassigned_partitions(self) -> bool:
        """True if an initialized partition of a subscribed topic is in no target."""
        return any(
            states.name in self._subscribed and self._owners.get(topic_id, Counter()).keys() != states.partitions
            for topic_id, states in self.topics.initialized.items()
        )

    def missing_states(
        self, names: Iterable[str], topics: TopicsImage, under_way: Partitions
    ) -> dict[bytes, TopicStates]:
        """Partitions of these topics whose states are neither initialized nor about to be (`under_way`)."""
        missing: dict[bytes, TopicStates] = {}
        for name in names:
            topic = topics.by_name.get(name)
            if topic is None:
                continue
            done = self.topics.initialized.get(topic.id)
            settled = under_way.get(topic.id, frozenset()) | (frozenset() if done is None else done.partitions)
            if len(settled) < len(topic.partitions):
                missing[topic.id] = TopicStates(name, frozenset(topic.partitions) - settled)
        return missing

    # -- description

    def describe(self, topics: TopicsImage) -> Description[DescribedGroup, Member]:
        described = DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name(),
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor_name=ASSIGNOR_NAME,
        )
        members = list(self.members.values())
        return Description(described, (_described_member(member, topics) for member in members))

    # -- replay

    def replay(self, key: ShareGroupKey, value: Message | None) -> None:
        """Apply a record of this group. Tombstones of unknown entries are ignored."""
        match key:
            case ShareGroupMetadataKey():
                if isinstance(value, ShareGroupMetadataValue):
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareGroupMemberMetadataKey(member_id=member_id):
                self._replay_member(member_id, value if isinstance(value, ShareGroupMemberMetadataValue) else None)
            case ShareGroupTargetAssignmentMetadataKey():
                self.replay_target_epoch(value)
            case ShareGroupTargetAssignmentMemberKey(member_id=member_id):
                self._replay_target(
                    member_id, value if isinstance(value, ShareGroupTargetAssignmentMemberValue) else None
                )
            case ShareGroupCurrentMemberAssignmentKey(member_id=member_id):
                if isinstance(value, ShareGroupCurrentMemberAssignmentValue):
                    member = self.members.get(member_id) or ShareMember(member_id)
                    self.members[member_id] = member.with_assignment(value)
                elif member_id in self.members:
                    self.members[member_id] = self.members[member_id].without_assignment()
            case ShareGroupStatePartitionMetadataKey():
                if isinstance(value, ShareGroupStatePartitionMetadataValue):
                    self.topics = ShareTopics.from_record(value)
                else:
                    self.topics = ShareTopics()

    def _replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            count(self._subscribed, before.topic_names, -1)
            self.held.change(-MEMBER_BYTES - size_of_names(before.topic_names))
        if value is None:
            self.members.pop(member_id, None)
            return
        after = self.members[member_id] = (before or ShareMember(member_id)).with_metadata(value)
        self._subscribed.update(after.topic_names)
        self.held.change(MEMBER_BYTES + size_of_names(after.topic_names))

    def _replay_target(self, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None) -> None:
        for topic_id, indexes in self.targets.pop(member_id, _NO_PARTITIONS).items():
            owners = self._owners[topic_id]
            owners.subtract(indexes)
            for index in indexes:
                if owners[index] <= 0:
                    del owners[index]
        if value is None:
            return
        target = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
        self.targets[member_id] = target
        for topic_id, indexes in target.items():
            self._owners.setdefault(topic_id, Counter()).update(indexes)


def _described_member(member: ShareMember, topics: TopicsImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=topics.by_id[topic_id].name, partitions=sorted(indexes))
                for topic_id, indexes in member.assigned.items()
                if topic_id in topics.by_id
            ]
        ),
    )
