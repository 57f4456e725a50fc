"""Core: consumer groups become classic groups when their last member with the consumer protocol is gone (KIP-848).

A small group is downgraded in one batch, with the change that leads to it. A large one takes turns (`conversions.py`).
The record of the classic group has to be the last one, because the coordinator of Apache Kafka loads no tombstone of a
consumer group while a classic one has its name. So the first batches remove members, and a coordinator that loads less
than all of them has a consumer group in which those are unknown: they join again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.assignors.assignor import Pace
from barnabas.broker.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from barnabas.broker.groups.classic_groups import ClassicGroups
from barnabas.broker.groups.classic_member import ClassicMember, MemberProtocol
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_groups import ConsumerGroups
from barnabas.broker.groups.consumer_member import ConsumerMember, Partitions, partitions_of
from barnabas.broker.groups.conversions import AT_ONCE_ITEMS, MEMBER_ITEMS, TURN_ITEMS, Conversion, Conversions, Turns
from barnabas.broker.groups.group import Client, GroupContext
from barnabas.broker.groups.group_keys import ConsumerGroupKey
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.target_assignment import number_of
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.protocol.embedded_consumer import read_version, write_assignment
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.decisions import DecisionKind, Notes

RETRY_MS = 500
"""Delay before a member is fenced again whose removal could not be written."""

MEMBERS_IN_A_TURN = TURN_ITEMS // MEMBER_ITEMS
"""Members that one turn removes."""


class Downgrades:
    """Downgrades in one partition of `__consumer_offsets`."""

    def __init__(
        self, context: GroupContext, classic: ClassicGroups, consumer: ConsumerGroups, conversions: Conversions
    ) -> None:
        self._context = context
        self._classic = classic
        self._consumer = consumer
        self._conversions = conversions

    def are_allowed(self, size: int) -> bool:
        """True if a group may become a classic one of that many members."""
        settings = self._context.settings()
        allowed = settings.group_consumer_migration_policy.lower() in ("downgrade", "bidirectional")
        return allowed and size <= settings.group_max_size

    def become_classic(
        self,
        group: ConsumerGroup,
        staying: list[ConsumerMember],
        ids: list[str],
        rebalances_because: str,
        update: Update,
    ) -> None:
        """Convert the group to a classic one of these members; `ids` are all whose records have to be removed. Starts a
        rebalance only if a reason is given.
        """
        if len(ids) * MEMBER_ITEMS + sum(number_of(held(member)) for member in staying) > AT_ONCE_ITEMS:
            self._begin_in_turns(group, staying, ids, rebalances_because, update)
        else:
            self._become_classic_at_once(group, staying, ids, rebalances_because, update)

    # -- at once

    def _become_classic_at_once(
        self,
        group: ConsumerGroup,
        staying: list[ConsumerMember],
        ids: list[str],
        rebalances_because: str,
        update: Update,
    ) -> None:
        """Replace the group at once, because live members have state that the log does not; undone if the write fails.
        """
        downgraded = [self._downgraded(member) for member in staying]
        classic = ClassicGroup.from_parts(group.group_id, CONSUMER_PROTOCOL_TYPE, group.epoch, downgraded, update.now)
        classic.is_unled = bool(rebalances_because)
        update.records += [*group.tombstones_of(ids), classic.record()]
        for member_id in group.members:
            self._consumer.forget_timers(group.group_id, member_id)
        self._classic.adopt(classic, update.now)
        update.undo = partial(self._undo, group, classic, update.now)
        _note(update.notes, group, classic)
        if rebalances_because:
            self._rebalance(classic, rebalances_because, update.now, update.notes)

    def _rebalance(self, classic: ClassicGroup, reason: str, now: Now, notes: Notes) -> None:
        outcome = Outcome(replay=False)
        self._classic.rebalances.prepare(classic, reason, outcome, now)
        assert not outcome.records and not outcome.answers, "no member waits yet, and no protocol is chosen"
        notes += outcome.notes

    def _undo(self, group: ConsumerGroup, classic: ClassicGroup, now: Now) -> None:
        self._classic.rebalances.cancel_timers(classic)
        classic.waiting()
        classic.die()
        self._context.groups.put(group)
        for member in group.members.values():
            self._consumer.sessions.renew(
                group.group_id, member.member_id, member.session_timeout_ms if member.is_classic else RETRY_MS, now
            )

    def _downgraded(self, member: ConsumerMember) -> ClassicMember:
        assert member.classic is not None
        protocols = tuple(MemberProtocol(each.name, each.metadata) for each in member.classic.supported_protocols)
        return ClassicMember(
            member.member_id,
            member.instance_id,
            Client(member.client_id, member.client_host),
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            protocols,
            # Not its target: another member may still own part of that, and none may be given what this member still
            # owns.
            embedded_assignment(held(member), protocols[0].metadata, self._context.image().topics),
        )

    # -- in turns

    def _begin_in_turns(
        self,
        group: ConsumerGroup,
        staying: list[ConsumerMember],
        ids: list[str],
        rebalances_because: str,
        update: Update,
    ) -> None:
        """The first members are removed together with the change that leads to the downgrade: they join again even if
        nothing else is written, and the partitions of those who left find an owner.
        """
        stays = {member.member_id for member in staying}
        ids = sorted(ids, key=stays.__contains__)
        at_once = len(ids) - len(staying) + MEMBERS_IN_A_TURN
        update.records += _tombstones(group, ids[:at_once])
        written = [update.records]
        conversion = Conversion(group.group_id, update.now)
        self._conversions.begin(
            conversion, self._turns(conversion, group, staying, (written, ids[at_once:]), rebalances_because)
        )
        update.undo = partial(self._cancel, group, update.now)

    def _cancel(self, group: ConsumerGroup, now: Now) -> None:
        """The first members could not be removed."""
        self._conversions.cancel(group.group_id)
        for member in group.members.values():
            if not member.is_classic:
                self._consumer.sessions.renew(group.group_id, member.member_id, RETRY_MS, now)

    def _turns(
        self,
        conversion: Conversion,
        group: ConsumerGroup,
        staying: list[ConsumerMember],
        removed: tuple[list[list[CoordinatorRecord]], list[str]],
        rebalances_because: str,
    ) -> Turns:
        """`removed`: the batches that are written, and the ids that are still to be removed."""
        written, ids = removed
        for start in range(0, len(ids), MEMBERS_IN_A_TURN):
            batch = _tombstones(group, ids[start : start + MEMBERS_IN_A_TURN])
            yield Outcome(batch, replay=False)
            if conversion.error is not None:
                return (yield from self._end_as_written(group, written))
            written.append(batch)
        classic = yield from self._classic_group(conversion, group, staying)
        classic.is_unled = bool(rebalances_because)
        last = Outcome([*group.own_tombstones(), classic.record()], replay=False)
        _note(last.notes, group, classic)
        yield last
        if conversion.error is not None:
            return (yield from self._end_as_written(group, written))
        return partial(self._replace, group, classic, rebalances_because)

    def _classic_group(
        self, conversion: Conversion, group: ConsumerGroup, staying: list[ConsumerMember]
    ) -> Stepwise[ClassicGroup]:
        classic = ClassicGroup(group.group_id, conversion.now.wall_ms)
        classic.generation = group.epoch
        pace = Pace()
        for member in staying:
            downgraded = self._downgraded(member)
            classic.add(downgraded, CONSUMER_PROTOCOL_TYPE)
            self._classic.rebalances.watch(classic, downgraded, downgraded.session_timeout_ms, conversion.now)
            self._consumer.forget_timers(group.group_id, member.member_id)
            if pace.is_full(MEMBER_ITEMS + number_of(held(member))):
                yield
        yield
        classic.become_stable()
        yield
        return classic

    def _replace(self, group: ConsumerGroup, classic: ClassicGroup, rebalances_because: str, now: Now) -> Outcome:
        self._consumer.assignments.forget(group.group_id)
        for member_id in group.members.keys() - classic.members.keys():
            self._consumer.forget_timers(group.group_id, member_id)
        self._context.groups.put(classic)
        outcome = Outcome(replay=False)
        if rebalances_because:
            self._rebalance(classic, rebalances_because, now, outcome.notes)
        return outcome

    def _end_as_written(self, group: ConsumerGroup, written: list[list[CoordinatorRecord]]) -> Turns:
        """It stays a consumer group, with the members that the log has."""
        for batch in written:
            for record in batch:
                assert isinstance(record.key, ConsumerGroupKey)
                self._consumer.replay(record.key, record.value)
            yield None
        group.must_reassign = True
        return _do_nothing


def _do_nothing(now: Now) -> Outcome:
    return Outcome()


def _tombstones(group: ConsumerGroup, ids: Sequence[str]) -> list[CoordinatorRecord]:
    return [record for member_id in ids for record in records.member_tombstones(group.group_id, member_id)]


def _note(notes: Notes, group: ConsumerGroup, classic: ClassicGroup) -> None:
    notes.note(
        DecisionKind.LIFECYCLE,
        f"group {group.group_id}",
        f"group {group.group_id} becomes a classic group",
        cause=f"no member with the consumer protocol remains; {len(classic.members)} classic members do",
        group_epoch=group.epoch,
        members=len(classic.members),
    )


def embedded_assignment(partitions: Partitions, metadata: bytes, topics: TopicsImage) -> bytes:
    """The assignment in the version of the member's subscription."""
    by_name = {
        topics.by_id[topic_id].name: sorted(numbers)
        for topic_id, numbers in partitions.items()
        if topic_id in topics.by_id
    }
    return write_assignment(by_name, read_version(metadata))


def held(member: ConsumerMember) -> Partitions:
    """Partitions that the member may still read: assigned ones and those not yet revoked."""
    owned = partitions_of(member.assigned)
    for topic_id, revoking in member.revoking.items():
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(revoking)
    return owned
