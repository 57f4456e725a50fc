"""Core: members of large classic groups that are written as members of a consumer group, before it exists.

They take effect all at once, with the tombstone of the classic group and the record of the consumer group's epoch,
which are one batch. If an upgrade ends before, because its coordinator is gone or a write failed, the members are
removed from the log again.
"""

from __future__ import annotations

from barnabas.broker.coordinator.outcome import CoordinatorRecord
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.consumer_group import ConsumerGroup, ConsumerGroupKey
from barnabas.broker.groups.group import GroupDirectory, GroupType
from barnabas.protocol.messages.group_log import ConsumerGroupMetadataKey
from barnabas.protocol.schema import Message


class UnfinishedUpgrades:
    """Consumer groups that are not in the directory yet, by group id."""

    def __init__(self, directory: GroupDirectory) -> None:
        self._directory = directory
        self._groups: dict[str, ConsumerGroup] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def ids(self) -> list[str]:
        return list(self._groups)

    def replay(self, key: ConsumerGroupKey, value: Message | None) -> bool:
        """Apply the record of a group whose upgrade has not ended. Returns False if it is a record of another group;
        the record that ends an upgrade is one: it puts the group into the directory first.
        """
        group_id = key.group_id
        group = self._groups.get(group_id)
        current = self._directory.get(group_id)
        if group is None:
            if current is None or current.type is not GroupType.CLASSIC:
                return False
            if value is None:
                return True
            group = self._groups[group_id] = ConsumerGroup(group_id)
        if current is None and value is not None and isinstance(key, ConsumerGroupMetadataKey):
            self._directory.put(self._groups.pop(group_id))
            return False
        group.replay(key, value)
        if not group.members and not group.targets:
            del self._groups[group_id]
        return True

    def tombstones(self, group_id: str, members: int) -> list[CoordinatorRecord]:
        """Those of so many members of the group; none if it has none left."""
        group = self._groups.get(group_id)
        if group is None:
            return []
        ids = [*group.members, *group.targets_without_member()][:members]
        return [record for member_id in ids for record in records.member_tombstones(group_id, member_id)]
