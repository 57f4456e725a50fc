"""Core: a group whose coordinator assigns by epochs: the common part of consumer, share and streams groups.

The group epoch grows with each change of members or topics, the assignment epoch follows it when a target assignment is
computed, and each member reaches the assignment epoch when it has got its target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now
from barnabas.broker.groups.consumer_member import UNKNOWN_EPOCH
from barnabas.broker.groups.group import Commit, GroupType
from barnabas.broker.groups.group_memory import HeldBytes
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import (
    ConsumerGroupTargetAssignmentMetadataValue,
    ShareGroupTargetAssignmentMetadataValue,
    StreamsGroupTargetAssignmentMetadataValue,
)
from barnabas.protocol.schema import Message

Member = TypeVar("Member")
Target = TypeVar("Target")

FIRST_EPOCH = 1
"""Epoch of a new group and of its empty target assignment. As a member's epoch, 0 means that it joins."""


class RefreshDeadline(NamedTuple):
    """Time of the next check of the subscribed topics without a change that requests one."""

    deadline_ms: int
    epoch: int
    """Group epoch for which it was set. If the group has another one, its write failed and the topics must be checked
    again.
    """


_TARGET_METADATA = (
    ConsumerGroupTargetAssignmentMetadataValue,
    ShareGroupTargetAssignmentMetadataValue,
    StreamsGroupTargetAssignmentMetadataValue,
)
_REFRESH_NOW = RefreshDeadline(0, 0)


class EpochGroup(ABC, Generic[Member, Target]):
    """Implements `broker.groups.group.Group`, but for states, offsets and tombstones."""

    type: ClassVar[GroupType]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.held = HeldBytes()
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        """Hash of names, ids, partition counts and racks of all topics of the group."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        """Wall time of the last target assignment; 0 if there was none or the log does not have it."""
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Target] = {}
        """Target assignment by member id."""
        self.refresh_deadline = _REFRESH_NOW
        """Soft state."""

    def __repr__(self) -> str:
        return (
            f"{self.group_id} {self.state_name()} epoch {self.epoch} assignment epoch {self.assignment_epoch} "
            f"members {len(self.members)}"
        )

    @property
    def protocol_type(self) -> str:
        return self.type.value

    @abstractmethod
    def state_name(self) -> str:
        """Name in ListGroups."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool: ...

    @abstractmethod
    def check_commit(self, commit: Commit, now: Now) -> None: ...

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]: ...

    @abstractmethod
    def replay(self, key: Any, value: Message | None) -> None:
        """Apply a record of this group. Tombstones of unknown entries are ignored."""

    def is_empty(self) -> bool:
        return not self.members

    def empty_since_ms(self) -> int | None:
        """None: the log does not record when the last member left, so each offset expires by its own commit time."""
        return None

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def member(self, member_id: str) -> Member:
        """Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def commits_from_outside(self, commit: Commit) -> bool:
        """True if the sender need not be a member: an admin tool of an empty group, or a transactional producer that
        does not name its member."""
        if commit.generation_or_epoch >= 0:
            return False
        if not self.members:
            return True
        return (
            commit.transactional
            and commit.generation_or_epoch == -1
            and not (commit.member_id or commit.group_instance_id)
        )

    def metadata_has_expired(self, now_ms: int) -> bool:
        return now_ms >= self.refresh_deadline.deadline_ms or self.epoch < self.refresh_deadline.epoch

    def request_metadata_refresh(self) -> None:
        """Check the topics at the next heartbeat of any member."""
        self.refresh_deadline = _REFRESH_NOW

    def replay_target_epoch(self, value: Message | None) -> None:
        """Apply the record with the epoch of the target assignment, or its tombstone."""
        if isinstance(value, _TARGET_METADATA):
            self.assignment_epoch = value.assignment_epoch
            self.assignment_timestamp_ms = max(value.assignment_timestamp, 0)
        else:
            self.assignment_epoch, self.assignment_timestamp_ms = UNKNOWN_EPOCH, 0
