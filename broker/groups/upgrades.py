"""Core: upgrades of classic groups to consumer groups (KIP-848). Every member keeps its partitions.

A small group is upgraded by the heartbeat that asks for it. A large one is upgraded in turns of the event loop; the
heartbeat waits, and meanwhile the group does not change: clients are asked to try again. Turns read what the members
have sent and write them, some in a turn (`unfinished_upgrades.py`). The last one writes the tombstone of the classic
group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Operation, Outcome, Reply
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_groups import ClassicGroups
from barnabas.broker.groups.consumer_group import ConsumerGroup, ConsumerGroupKey
from barnabas.broker.groups.consumer_groups import ConsumerGroups
from barnabas.broker.groups.consumer_member import ConsumerMember, partitions_of
from barnabas.broker.groups.group import GroupContext
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.upgraded_members import cannot_upgrade, upgraded_members
from barnabas.protocol.errors import KafkaError, MalformedMessage
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.runtime.at_once import Stepwise, at_once
from barnabas.runtime.decisions import DecisionKind, Notes

AT_ONCE_BYTES = 32 * 1024
"""A group that holds more of what its members sent is upgraded in turns: about 80 members."""
MEMBERS_IN_A_TURN = 40
PARTITIONS_IN_A_TURN = 1_000
"""A turn writes no more members, and no member more if it has written so many partitions."""
RETRY_MS = 500
"""Delay before members are removed from the log again whose removal could not be written."""


@dataclass(slots=True)
class _Upgrade:
    group: ClassicGroup
    join: Callable[[Reply, Now], Outcome]
    """The heartbeat that asked for it."""
    reply: Reply
    now: Now
    """Time of the present turn."""


class Upgrades:
    """Upgrades in one partition of `__consumer_offsets`."""

    def __init__(self, context: GroupContext, classic: ClassicGroups, consumer: ConsumerGroups) -> None:
        self._context = context
        self._classic = classic
        self._consumer = consumer
        self._unfinished = consumer.unfinished
        self._under_way: dict[str, _Upgrade] = {}

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
        for record in written:
            assert isinstance(record.key, ConsumerGroupKey)
            upgraded.replay(record.key, record.value)
        self._renew_sessions(group, members, update.now)
        _note(update.notes, group)
        return upgraded

    def _records(self, group: ClassicGroup, members: list[ConsumerMember]) -> list[CoordinatorRecord]:
        group_id = group.group_id
        return [
            *(records.member_metadata(group_id, member) for member in members),
            self._group_epoch(group, {name for member in members for name in member.topic_names}),
            *(records.target_assignment(group_id, each.member_id, partitions_of(each.assigned)) for each in members),
            records.target_assignment_epoch(group_id, group.generation, 0),
            *(records.current_assignment(group_id, member) for member in members),
        ]

    def _group_epoch(self, group: ClassicGroup, topics: set[str]) -> CoordinatorRecord:
        metadata_hash = self._consumer.assignments.metadata_hash(sorted(topics))
        return records.group_epoch(group.group_id, group.generation, metadata_hash)

    def _renew_sessions(self, group: ClassicGroup, members: list[ConsumerMember], now: Now) -> None:
        for member in members:
            self._consumer.sessions.renew(group.group_id, member.member_id, member.session_timeout_ms, now)

    # -- in turns

    def is_due_in_turns(self, group: ClassicGroup) -> bool:
        return group.held.size_bytes > AT_ONCE_BYTES

    def begin(self, group: ClassicGroup, join: Callable[[Reply, Now], Outcome], reply: Reply, now: Now) -> Outcome:
        """Upgrade the group in later turns, and then answer the heartbeat `join`. Raises KafkaError
        GROUP_ID_NOT_FOUND."""
        self._check(group)
        group.is_upgrading = True
        upgrade = self._under_way[group.group_id] = _Upgrade(group, join, reply, now)
        self._schedule(group.group_id, partial(self._turn, upgrade, self._turns(upgrade)), now)
        return Outcome()

    def _turn(self, upgrade: _Upgrade, turns: Iterator[Outcome | None], now: Now) -> Outcome:
        """Timer."""
        upgrade.now = now
        group_id = upgrade.group.group_id
        try:
            outcome = next(turns) or Outcome()
        except StopIteration:
            del self._under_way[group_id]
            outcome = upgrade.join(upgrade.reply, now)
            outcome.failed = outcome.failed or partial(_refused, upgrade.reply)
            return outcome
        except KafkaError as error:
            return self._end(upgrade, error)
        outcome.failed = partial(self._end, upgrade)
        self._schedule(group_id, partial(self._turn, upgrade, turns), now)
        return outcome

    def _turns(self, upgrade: _Upgrade) -> Iterator[Outcome | None]:
        """Take the turns, each of which writes and answers something; the group is a consumer group after the last one.
        Raises KafkaError GROUP_ID_NOT_FOUND.
        """
        group = upgrade.group
        group_id = group.group_id
        members = yield from self._members(group)
        topics: set[str] = set()
        for some in _in_turns(members):
            topics.update(name for member in some for name in member.topic_names)
            yield Outcome(
                [
                    record
                    for member in some
                    for record in (
                        records.member_metadata(group_id, member),
                        records.target_assignment(group_id, member.member_id, partitions_of(member.assigned)),
                        records.current_assignment(group_id, member),
                    )
                ]
            )
        for some in _in_turns(members):
            self._renew_sessions(group, some, upgrade.now)
            yield Outcome(answers=self._classic.interrupt(group, [group.members[each.member_id] for each in some]))
        epoch = self._group_epoch(group, topics)
        yield None
        last = Outcome([*group.tombstones(), epoch, records.target_assignment_epoch(group_id, group.generation, 0)])
        _note(last.notes, group)
        yield last

    def _end(self, upgrade: _Upgrade, error: KafkaError) -> Outcome:
        """The group stays classic."""
        group = upgrade.group
        group.is_upgrading = False
        del self._under_way[group.group_id]
        self._context.timers.cancel(_key(group.group_id))
        if group.group_id in self._unfinished:
            self._schedule(group.group_id, partial(self._remove, group.group_id), upgrade.now)
        return _refused(upgrade.reply, error)

    # -- upgrades that did not end

    def loaded(self, now: Now) -> None:
        """The whole log has been replayed."""
        for group_id in self._unfinished.ids():
            self._schedule(group_id, partial(self._remove, group_id), now)

    def _remove(self, group_id: str, now: Now) -> Outcome:
        """Timer: remove some of the members that were written."""
        outcome = Outcome(self._unfinished.tombstones(group_id, MEMBERS_IN_A_TURN))
        if outcome.records:
            again = partial(self._remove, group_id)
            self._schedule(group_id, again, now)
            outcome.failed = lambda error: self._schedule(group_id, again, now, RETRY_MS)
        return outcome

    def give_up(self) -> list[Reply]:
        """The leadership has moved: replies that still wait."""
        waiting = [upgrade.reply for upgrade in self._under_way.values()]
        self._under_way.clear()
        return waiting

    def _schedule(self, group_id: str, operation: Operation, now: Now, delay_ms: int = 0) -> Outcome:
        self._context.timers.schedule(_key(group_id), now.monotonic_ms + delay_ms, operation)
        return Outcome()


def _key(group_id: str) -> Hashable:
    return ("consumer-upgrade", group_id)


def _in_turns(members: list[ConsumerMember]) -> Iterator[list[ConsumerMember]]:
    some: list[ConsumerMember] = []
    partitions = 0
    for member in members:
        some.append(member)
        partitions += sum(map(len, member.assigned.values()))
        if len(some) == MEMBERS_IN_A_TURN or partitions >= PARTITIONS_IN_A_TURN:
            yield some
            some, partitions = [], 0
    if some:
        yield some


def _refused(reply: Reply, error: KafkaError) -> Outcome:
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
