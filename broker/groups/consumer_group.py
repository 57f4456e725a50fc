"""Core: one consumer group (KIP-848) with its members, epochs, target assignment and resolved patterns.

All of it follows from the log: only `replay` changes it, except for soft state such as one deadline. Counters over the
members are kept up to date because every heartbeat needs them. Decisions are made in `consumer_groups.py` and
`consumer_assignments.py`.

Invariants: assignment_epoch <= epoch; a partition is assigned to, or being revoked by, at most one member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import Enum

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.consumer_member import (
    UNKNOWN_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
)
from barnabas.broker.groups.description import Description
from barnabas.broker.groups.epoch_group import EpochGroup
from barnabas.broker.groups.group import Commit, GroupType
from barnabas.broker.groups.group_description import described_member
from barnabas.broker.groups.group_keys import ConsumerGroupKey
from barnabas.broker.groups.group_memory import MEMBER_BYTES
from barnabas.broker.groups.group_subscriptions import GroupSubscriptions, ResolvedPattern, count
from barnabas.broker.groups.partition_owners import PartitionOwners
from barnabas.broker.groups.state_transitions import Moves
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_describe import DescribedGroup, Member
from barnabas.protocol.messages.group_log import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from barnabas.protocol.schema import Message

CONSUMER_PROTOCOL_TYPE = GroupType.CONSUMER.value

_COMMIT_WITH_EPOCHS = 9
"""First OffsetCommit version whose members understand STALE_MEMBER_EPOCH."""

_NO_PARTITIONS: Partitions = {}


class GroupState(Enum):
    """The value is the name in ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch."""
    RECONCILING = "Reconciling"
    """At least one member has not reached its target yet."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted, or converted to a classic group."""


GROUP_MOVES: Moves[GroupState] = {
    GroupState.EMPTY: (GroupState.ASSIGNING, GroupState.RECONCILING, GroupState.STABLE, GroupState.DEAD),
    GroupState.ASSIGNING: (GroupState.RECONCILING, GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD),
    GroupState.RECONCILING: (GroupState.ASSIGNING, GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD),
    GroupState.STABLE: (GroupState.ASSIGNING, GroupState.RECONCILING, GroupState.EMPTY, GroupState.DEAD),
    GroupState.DEAD: (),
}


class ConsumerGroup(EpochGroup[ConsumerMember, Partitions]):
    """Implements `broker.groups.group.Group`."""

    type = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.subscribed = GroupSubscriptions(self.held)
        self.owners = PartitionOwners()
        self.has_partition_metadata = False
        """A record of an older version that must be removed exists."""
        self.must_reassign = False
        """Soft state: the loaded target assignment was incomplete."""
        self._static_members: dict[str, str] = {}
        self._assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        self.classic_members = 0
        """Number of members with the classic protocol."""

    # -- the Group protocol

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def state_name(self) -> str:
        return self.state.value

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    # -- offsets

    def check_commit(self, commit: Commit, now: Now) -> None:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.

        Accepts an older epoch if the member owned partitions in it; `check_commit_of` then checks each partition.
        """
        if self.commits_from_outside(commit):
            return
        member = self.member(commit.member_id)
        if not commit.transactional and not member.is_classic and commit.version < _COMMIT_WITH_EPOCHS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "members of a consumer group must commit with version 9 or later"
            )
        if commit.generation_or_epoch > member.epoch:
            raise self._stale(member, f"epoch {commit.generation_or_epoch} is newer than {member.epoch}")

    def check_commit_of(self, commit: Commit, topic: str, topic_id: bytes, partition: int) -> None:
        """Check that one offset may be committed with the member epoch of the commit. An older epoch is
        valid as long as the member has owned the partition since then (KIP-1251).

        Raises KafkaError: STALE_MEMBER_EPOCH, ILLEGAL_GENERATION. To be called after `check_commit`.
        """
        if self.commits_from_outside(commit):
            return
        member = self.member(commit.member_id)
        if commit.generation_or_epoch == member.epoch:
            return
        assigned_in = member.assigned.get(topic_id, {}).get(partition)
        if assigned_in is None:
            assigned_in = member.revoking.get(topic_id, {}).get(partition)
        if assigned_in is None:
            raise self._stale(member, f"partition {partition} is not assigned to the member")
        if commit.generation_or_epoch < assigned_in:
            raise self._stale(
                member, f"epoch {commit.generation_or_epoch} is older than its assignment in epoch {assigned_in}"
            )

    def _stale(self, member: ConsumerMember, message: str) -> KafkaError:
        code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        return KafkaError(code, message)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise self._stale(member, f"epoch {member_epoch} is not the member's epoch {member.epoch}")

    # -- members

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with this group.instance.id."""
        if instance_id is None:
            return None
        member_id = self._static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerMember) -> Partitions:
        """Target assignment of the member, or of the static member that it replaces."""
        owner = self.static_member(member.instance_id)
        if member.instance_id is not None:
            return _NO_PARTITIONS if owner is None else self.targets.get(owner.member_id, _NO_PARTITIONS)
        return self.targets.get(member.member_id, _NO_PARTITIONS)

    def waits_in_vain(self, member: ConsumerMember) -> bool:
        """True if no partition that the member waits for is free yet."""
        return any(
            self.owners.epoch(topic_id, partition) != UNKNOWN_EPOCH
            for topic_id, partitions in self.targets.get(member.member_id, _NO_PARTITIONS).items()
            for partition in partitions
            if partition not in member.assigned.get(topic_id, {})
        )

    def supports_classic_protocols(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """True if a member with these protocols is compatible with the members that use the classic protocol."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if not self.members:
            return bool(protocols)
        return any(self._classic_protocols[name] == self.classic_members for name in protocols)

    def preferred_assignor(
        self, before: ConsumerMember | None = None, after: ConsumerMember | None = None
    ) -> str | None:
        """Server assignor with most votes; None if no member requests one."""
        votes = self._assignors.copy()
        if before is not None and before.server_assignor is not None:
            votes[before.server_assignor] -= 1
        if after is not None and after.server_assignor is not None:
            votes[after.server_assignor] += 1
        most = max(votes.values(), default=0)
        return min((name for name, count in votes.items() if count == most), default=None) if most > 0 else None

    # -- targets loaded from an incomplete log

    def targets_without_member(self) -> list[str]:
        """Ids with a target assignment that are not members."""
        return [member_id for member_id in self.targets if member_id not in self.members]

    def assigns_each_once(self, topics: TopicsImage) -> bool:
        """True if each partition of a subscribed topic is in the target of exactly one member."""
        shares: dict[bytes, list[frozenset[int]]] = {}
        for member_id in self.members:
            for topic_id, partitions in self.targets.get(member_id, _NO_PARTITIONS).items():
                shares.setdefault(topic_id, []).append(partitions)
        assigned = {topic_id: frozenset[int]().union(*parts) for topic_id, parts in shares.items()}
        if any(sum(map(len, shares[topic_id])) != len(partitions) for topic_id, partitions in assigned.items()):
            return False
        subscribed = [topics.by_name[name] for name in self.subscribed if name in topics.by_name]
        return all(topic.partitions.keys() <= assigned.get(topic.id, frozenset()) for topic in subscribed)

    # -- replay

    def replay(self, key: ConsumerGroupKey, value: Message | None) -> None:
        """Apply a record of this group. Tombstones of unknown entries are ignored."""
        match key:
            case ConsumerGroupMetadataKey():
                if isinstance(value, ConsumerGroupMetadataValue):
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
                    self.must_reassign = False
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                if isinstance(value, ConsumerGroupMemberMetadataValue):
                    if value.instance_id is not None:
                        self._static_members[value.instance_id] = member_id
                    self._replay_member(self._member_or_new(member_id).with_metadata(value))
                else:
                    self._replay_removed(member_id)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self.replay_target_epoch(value)
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                self._replay_target(member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
                    self._replay_member(self._member_or_new(member_id).with_assignment(value))
                elif member_id in self.members:
                    self._replay_member(self.members[member_id].without_assignment())
            case ConsumerGroupRegularExpressionKey(regular_expression=pattern):
                self._replay_pattern(pattern, value)

    def _member_or_new(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id)

    def _replay_member(self, member: ConsumerMember) -> None:
        """Add a member or replace its state."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is None:
            self.subscribed.replace_names(frozenset(), member.topic_names)
        else:
            self._count_member(before, -1)
            self.subscribed.replace_names(before.topic_names, member.topic_names)
            self.owners.release(before.assigned, before.epoch)
            self.owners.release(before.revoking, before.epoch)
            if before.instance_id != member.instance_id:
                self._free_instance_id(before)
        self._count_member(member, 1)
        self.owners.own(member.assigned, member.epoch)
        self.owners.own(member.revoking, member.epoch)
        if member.instance_id is not None:
            # A member must not take an instance id over from one that joined with it later: a log that misses compacted
            # tombstones first restores the former member and then removes it.
            self._static_members.setdefault(member.instance_id, member.member_id)

    def _replay_removed(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.subscribed.replace_names(member.topic_names, frozenset())
        self._count_member(member, -1)
        self.owners.release(member.assigned, member.epoch)
        self.owners.release(member.revoking, member.epoch)
        self._free_instance_id(member)

    def _free_instance_id(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self._static_members.get(member.instance_id) == member.member_id:
            del self._static_members[member.instance_id]

    def _replay_target(self, member_id: str, value: Message | None) -> None:
        if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
            self.targets[member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
        else:
            self.targets.pop(member_id, None)

    def _replay_pattern(self, pattern: str, value: Message | None) -> None:
        found = None
        if isinstance(value, ConsumerGroupRegularExpressionValue):
            found = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
        self.subscribed.resolve(pattern, found)

    def _count_member(self, member: ConsumerMember, step: int) -> None:
        """Update all counters except those of topic names, which may be many."""
        self.held.change(step * MEMBER_BYTES)
        self.subscribed.count_pattern(member.topic_pattern, step)
        if member.server_assignor is not None:
            count(self._assignors, (member.server_assignor,), step)
        if member.classic is not None:
            self.classic_members += step
            metadata_bytes = sum(len(protocol.metadata) for protocol in member.classic.supported_protocols)
            self.held.change(step * metadata_bytes)
            count(self._classic_protocols, (protocol.name for protocol in member.classic.supported_protocols), step)

    # -- descriptions

    def tombstones(self) -> list[CoordinatorRecord]:
        return self.tombstones_of(self.ids_with(None, None))

    def tombstones_of(self, ids: list[str]) -> list[CoordinatorRecord]:
        """Tombstones of the group and of all whose records it has."""
        return [
            *(records.current_assignment_tombstone(self.group_id, member_id) for member_id in ids),
            *(records.target_assignment_tombstone(self.group_id, member_id) for member_id in ids),
            records.target_assignment_epoch_tombstone(self.group_id),
            *(records.member_metadata_tombstone(self.group_id, member_id) for member_id in ids),
            *self._last_tombstones(),
        ]

    def ids_with(self, replaced: str | None, replacement: str | None) -> list[str]:
        """Ids of members and of targets without a member, after records that replace one member by another."""
        known = (*self.members, *self.targets_without_member())
        return [replacement if member_id == replaced and replacement else member_id for member_id in known]

    def own_tombstones(self) -> list[CoordinatorRecord]:
        """Tombstones of the group itself, to follow those of its members."""
        return [records.target_assignment_epoch_tombstone(self.group_id), *self._last_tombstones()]

    def _last_tombstones(self) -> list[CoordinatorRecord]:
        return [
            *(records.resolved_pattern_tombstone(self.group_id, pattern) for pattern in self.subscribed.resolved),
            records.partition_metadata_tombstone(self.group_id),
            records.group_epoch_tombstone(self.group_id),
        ]

    def describe(self, topics: TopicsImage, default_assignor: str) -> Description[DescribedGroup, Member]:
        """ConsumerGroupDescribe entry."""
        described = DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name(),
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor_name=self.preferred_assignor() or default_assignor,
            members=[],
        )
        seen, targets = list(self.members.values()), dict(self.targets)
        members = (described_member(member, targets.get(member.member_id, _NO_PARTITIONS), topics) for member in seen)
        return Description(described, members)


__all__ = [
    "CONSUMER_PROTOCOL_TYPE",
    "GROUP_MOVES",
    "ConsumerGroup",
    "GroupState",
    "MemberState",
]
