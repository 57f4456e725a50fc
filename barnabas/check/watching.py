"""Watches the group of the application: who has which partition, and what is committed."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from barnabas import Admin, TopicPartition
from barnabas.check.journal import Event, Journal, What
from barnabas.client.admin import ConsumerGroupDescription
from barnabas.protocol.errors import KafkaError

_LOOK_S = 0.25
InstanceOf = Callable[[str], int | None]
"""The instance that is the member of an id, if that is known."""


class GroupWatch:
    """The state of the group as it was last seen, and its changes in the journal."""

    def __init__(self, group: str, topic: str, journal: Journal, instance_of: InstanceOf) -> None:
        self._group = group
        self._topic = topic
        self._journal = journal
        self._instance_of = instance_of
        self._owners: dict[int, str] = {}
        self.committed: dict[int, int] = {}
        """By partition of the input topic."""
        self.described: ConsumerGroupDescription | None = None
        self.was_joined = False
        """True if the group had a member, or a committed offset, at some time."""

    async def run(self, admin: Admin) -> None:
        while True:
            await self.look(admin)
            await trio.sleep(_LOOK_S)

    async def look(self, admin: Admin) -> None:
        """Once; a cluster that does not answer now is asked again later."""
        try:
            described = await admin.describe_consumer_groups([self._group])
            offsets = await admin.list_consumer_group_offsets([self._group])
            self._see_members(described[self._group])
            self._see_offsets({at: place.offset for at, place in offsets[self._group].items() if place is not None})
        except KafkaError:
            return

    def members_of(self, instance: int) -> list[str]:
        """Ids of the members that this instance is."""
        if self.described is None:
            return []
        return [it.member_id for it in self.described.members if self._instance_of(it.member_id) == instance]

    def _see_members(self, described: ConsumerGroupDescription) -> None:
        self.described = described
        owners: dict[int, str] = {}
        for member in described.members:
            self.was_joined = True
            instance = self._instance_of(member.member_id)
            name = f"member {member.member_id}" if instance is None else f"instance-{instance}"
            owners |= {it.partition: name for it in member.assignment if it.topic == self._topic}
        now = time.time()
        for partition in sorted({*owners, *self._owners}):
            before, after = self._owners.get(partition), owners.get(partition)
            if before != after:
                text = f"partition {partition} goes from {before or 'nobody'} to {after or 'nobody'}"
                self._journal.add(Event(now, What.ASSIGNED, text, after, partition))
        self._owners = owners

    def _see_offsets(self, offsets: dict[TopicPartition, int]) -> None:
        now = time.time()
        for at, offset in offsets.items():
            if at.topic == self._topic and self.committed.get(at.partition) != offset:
                self.was_joined = True
                self.committed[at.partition] = offset
                text = f"committed offset of partition {at.partition} is {offset}"
                self._journal.add(Event(now, What.COMMITTED, text, None, at.partition, offset))
