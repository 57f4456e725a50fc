"""Core: the groups of one type in one partition of `__consumer_offsets`: look-up, replay, late members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from barnabas.broker.coordinator.outcome import Now, Outcome
from barnabas.broker.groups.decision_notes import note_member_fenced
from barnabas.broker.groups.epoch_group import EpochGroup
from barnabas.broker.groups.group import GroupContext
from barnabas.broker.groups.group_update import Update
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import Message

AnyGroup = TypeVar("AnyGroup", bound=EpochGroup[Any, Any])


class GroupsOfType(ABC, Generic[AnyGroup]):
    """Durable state changes only by `replay`."""

    group_class: type[AnyGroup]
    metadata_key: ClassVar[type[Any]]
    """Key of the record whose tombstone ends a group."""
    member_key: ClassVar[type[Any]]
    """Key of the record whose tombstone ends a membership."""
    name_if_missing: ClassVar[str] = "Group"
    """Subject of Kafka's error message about a group that does not exist."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    def find(self, group_id: str) -> AnyGroup | None:
        """None if the group does not exist or is of another type."""
        group = self._context.groups.get(group_id)
        return group if isinstance(group, self.group_class) else None

    def group(self, group_id: str) -> AnyGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self._context.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.name_if_missing} {group_id} not found.")
        if not isinstance(group, self.group_class):
            name = self.group_class.type.value
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {name} group.")
        return group

    def member(self, group_id: str, member_id: str) -> Any | None:
        group = self.find(group_id)
        return None if group is None else group.members.get(member_id)

    def _check_room(self, group: AnyGroup, member_id: str, most: int) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED if a new member would be one too many."""
        if len(group.members) >= most and member_id not in group.members:
            name = self.group_class.type.value
            message = f"The {name} group has reached its maximum capacity of {most} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    # -- leaving

    def fence(self, group_id: str, member_id: str, reason: str, now: Now) -> Outcome:
        """Timer: remove the member if it is still in the group."""
        group = self.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Outcome()
        update = Update(now)
        note_member_fenced(update.notes, group_id, member_id, reason)
        self._remove(group, member, update, f"{member_id} is fenced, {reason}")
        return update.outcome()

    @abstractmethod
    def _remove(self, group: AnyGroup, member: Any, update: Update, cause: str) -> None:
        """Write that the member is gone."""

    # -- the machine

    def replay(self, key: Any, value: Message | None) -> None:
        """Apply a record of a group of this type."""
        group_id: str = key.group_id
        group = self.find(group_id)
        if group is None:
            if value is None:
                # The tombstone refers to a group whose records were compacted away.
                return
            group = self.group_class(group_id)
            self._context.groups.put(group)
        group.replay(key, value)
        if value is None and isinstance(key, self.member_key):
            self._member_removed(group_id, key.member_id)
        if value is None and isinstance(key, self.metadata_key):
            self._group_removed(group_id)
            self._context.groups.remove(group_id)

    @abstractmethod
    def _member_removed(self, group_id: str, member_id: str) -> None:
        """Cancel the timers of the member."""

    def _group_removed(self, group_id: str) -> None:
        """Forget soft state."""

    def _groups(self) -> list[AnyGroup]:
        return [group for group in self._context.groups if isinstance(group, self.group_class)]

