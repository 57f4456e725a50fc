"""Core: classic groups of consumers become consumer groups (KIP-848). Every member keeps its partitions.

A small group is upgraded in one batch, by the heartbeat that asks for it. A large one takes turns (`conversions.py`),
and the heartbeat waits. The first batch removes the classic group and begins an empty consumer group, because the
coordinator of Apache Kafka loads no member of a consumer group while a classic one has its name. The next batches add
members. A coordinator that loads less than all of them has a consumer group in which the others are unknown, so they
join again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, Reply
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.assignors.assignor import Pace
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_groups import ClassicGroups
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_groups import ConsumerGroups
from barnabas.broker.groups.consumer_member import ConsumerMember, partitions_of
from barnabas.broker.groups.conversions import AT_ONCE_ITEMS, MEMBER_ITEMS, TURN_ITEMS, Conversion, Conversions, Turns
from barnabas.broker.groups.group import GroupContext
from barnabas.broker.groups.group_keys import ConsumerGroupKey
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.upgraded_members import cannot_upgrade, upgraded_members
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.runtime.at_once import Stepwise, at_once
from barnabas.runtime.decisions import DecisionKind, Notes

Join = Callable[[Reply, Now], Outcome]
"""The heartbeat of the member that joins, without its reply and time."""

ITEM_BYTES = 32
"""Bytes of what classic members sent that cost as much as a partition. A member holds about 300."""


class Upgrades:
    """Upgrades in one partition of `__consumer_offsets`."""

    def __init__(
        self, context: GroupContext, classic: ClassicGroups, consumer: ConsumerGroups, conversions: Conversions
    ) -> None:
        self._context = context
        self._classic = classic
        self._consumer = consumer
        self._conversions = conversions

    def _check(self, group: ClassicGroup) -> None:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        settings = self._context.settings()
        if settings.group_consumer_migration_policy.lower() not in ("upgrade", "bidirectional"):
            raise cannot_upgrade(group, "online upgrade is disabled")
        if not group.is_of_consumers:
            raise cannot_upgrade(group, "the group does not use the consumer embedded protocol")
        if len(group.members) > settings.group_consumer_max_size:
            raise cannot_upgrade(group, "the group size exceeds the consumer group maximum size")

    def _members(self, group: ClassicGroup) -> Stepwise[list[ConsumerMember]]:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        try:
            return (yield from upgraded_members(group, self._context.image().topics))
        except MalformedMessage as error:
            raise cannot_upgrade(group, f"the embedded consumer protocol is malformed: {error}") from None

    # -- at once

    def upgrade(self, group: ClassicGroup, update: Update) -> ConsumerGroup:
        """Returns the group that replaces it; `update` gets its records. Raises KafkaError GROUP_ID_NOT_FOUND."""
        self._check(group)
        members = at_once(self._members(group))
        update.answers += self._classic.interrupt(group)
        update.records += group.tombstones()
        written = self._records(group, members)
        update.records += written
        upgraded = ConsumerGroup(group.group_id)
        _apply(upgraded, written)
        self._renew_sessions(group, members, update.now)
        _note(update.notes, group)
        return upgraded

    def _records(self, group: ClassicGroup, members: list[ConsumerMember]) -> list[CoordinatorRecord]:
        group_id = group.group_id
        return [
            *(records.member_metadata(group_id, member) for member in members),
            self._epoch(group, at_once(_topics(members))),
            *(records.target_assignment(group_id, each.member_id, partitions_of(each.assigned)) for each in members),
            records.target_assignment_epoch(group_id, group.generation, 0),
            *(records.current_assignment(group_id, member) for member in members),
        ]

    def _epoch(self, group: ClassicGroup, topics: set[str]) -> CoordinatorRecord:
        metadata_hash = self._consumer.assignments.metadata_hash(sorted(topics))
        return records.group_epoch(group.group_id, group.generation, metadata_hash)

    def _renew_sessions(self, group: ClassicGroup, members: list[ConsumerMember], now: Now) -> None:
        for member in members:
            self._consumer.sessions.renew(group.group_id, member.member_id, member.session_timeout_ms, now)

    # -- in turns

    def take_turns(self, group: ClassicGroup) -> bool:
        """True if the group is too large to be upgraded at once."""
        return group.held.size_bytes > AT_ONCE_ITEMS * ITEM_BYTES

    def begin_in_turns(self, group: ClassicGroup, join: Join, reply: Reply, now: Now) -> None:
        """Begin to upgrade a large group, and answer `join` at the end. Raises KafkaError: GROUP_ID_NOT_FOUND,
        GROUP_MAX_SIZE_REACHED.
        """
        self._check(group)
        most = self._context.settings().group_consumer_max_size
        if len(group.members) >= most:
            message = f"The consumer group has reached its maximum capacity of {most} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        conversion = Conversion(group.group_id, now, reply)
        self._conversions.begin(conversion, self._turns(conversion, group, join, reply))

    def _turns(self, conversion: Conversion, group: ClassicGroup, join: Join, reply: Reply) -> Turns:
        try:
            members = yield from self._members(group)
        except KafkaError as error:
            return partial(_refuse, reply, error)
        topics = yield from _topics(members)
        epochs = [
            self._epoch(group, topics),
            records.target_assignment_epoch(group.group_id, group.generation, 0),
        ]
        yield Outcome([*group.tombstones(), *epochs], replay=False)
        if conversion.error is not None:
            return partial(_refuse, reply, conversion.error)
        upgraded = ConsumerGroup(group.group_id)
        _apply(upgraded, epochs)
        yield from self._write_members(conversion, group, members, upgraded)
        waiting = self._classic.interrupt(group)
        self._classic.rebalances.cancel_phases(group)
        group.die()
        self._context.groups.put(upgraded)
        if conversion.error is not None:
            upgraded.must_reassign = True
            yield Outcome(answers=waiting)
            return partial(_refuse, reply, conversion.error)
        last = Outcome(answers=waiting)
        _note(last.notes, group)
        yield last
        return partial(join, reply)

    def _write_members(
        self, conversion: Conversion, group: ClassicGroup, members: list[ConsumerMember], upgraded: ConsumerGroup
    ) -> Iterator[Outcome | None]:
        """Ends early if some cannot be written."""
        for some in _in_turns(members):
            written = [record for member in some for record in _member_records(group.group_id, member)]
            yield Outcome(written, replay=False)
            if conversion.error is not None:
                return
            _apply(upgraded, written)
            for member in some:
                self._classic.rebalances.unwatch(group, member.member_id)
            self._renew_sessions(group, some, conversion.now)


def _topics(members: list[ConsumerMember]) -> Stepwise[set[str]]:
    """Topics that any of them has subscribed."""
    topics: set[str] = set()
    pace = Pace()
    for member in members:
        topics.update(member.topic_names)
        if pace.is_full(1 + len(member.topic_names)):
            yield
    return topics


def _member_records(group_id: str, member: ConsumerMember) -> list[CoordinatorRecord]:
    return [
        records.member_metadata(group_id, member),
        records.target_assignment(group_id, member.member_id, partitions_of(member.assigned)),
        records.current_assignment(group_id, member),
    ]


def _apply(group: ConsumerGroup, written: list[CoordinatorRecord]) -> None:
    for record in written:
        assert isinstance(record.key, ConsumerGroupKey)
        group.replay(record.key, record.value)


def _in_turns(members: list[ConsumerMember]) -> Iterator[list[ConsumerMember]]:
    some: list[ConsumerMember] = []
    items = 0
    for member in members:
        some.append(member)
        items += MEMBER_ITEMS + len(member.topic_names) + sum(map(len, member.assigned.values()))
        if items >= TURN_ITEMS:
            yield some
            some, items = [], 0
    if some:
        yield some


def _refuse(reply: Reply, error: KafkaError, now: Now) -> Outcome:
    response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return Outcome(answers=[(reply, response)])


def _note(notes: Notes, group: ClassicGroup) -> None:
    notes.note(
        DecisionKind.LIFECYCLE,
        f"group {group.group_id}",
        f"group {group.group_id} becomes a consumer group",
        cause=f"a member with the consumer protocol joins; {len(group.members)} classic members remain",
        generation=group.generation,
        members=len(group.members),
    )
