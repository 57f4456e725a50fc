"""Core: consumer groups (KIP-848), with one heartbeat request, server-side assignment and no global barrier.

A member's heartbeat reports its subscription and its owned partitions; the answer lists its assignment. Decisions are
written and come back by `replay`; nothing else changes durable state. This file decides membership;
`consumer_assignments` computes assignments, and `sessions` enforces timeouts.

Knows no other kind of group: conversions go through `migration`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from barnabas.broker.coordinator.outcome import Now, Outcome, Reply
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.consumer_assignments import Assignments
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_heartbeat import (
    assignment_of,
    check_epoch,
    check_request,
    is_full_request,
    reported_partitions,
    with_request,
)
from barnabas.broker.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
)
from barnabas.broker.groups.decision_notes import note_member_fenced
from barnabas.broker.groups.description import Description
from barnabas.broker.groups.group import Client, Group, GroupContext, GroupType
from barnabas.broker.groups.group_configs import consumer_heartbeat_interval_ms, consumer_session_timeout_ms
from barnabas.broker.groups.group_memory import MEMBER_BYTES, size_of_names
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.groups_of_type import GroupsOfType
from barnabas.broker.groups.pattern_searches import check_pattern
from barnabas.broker.groups.sessions import Sessions
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_describe import DescribedGroup, Member
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.group_log import ConsumerGroupMemberMetadataKey, ConsumerGroupMetadataKey
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.uuids import random_uuid

log = logging.getLogger(__name__)


class Migration(Protocol):
    """Converts groups between the classic and the consumer kind."""

    def upgrade(self, group: Group, update: Update) -> ConsumerGroup:
        """A consumer group with the members of the classic one; adds its records to `update`. Raises KafkaError
        GROUP_ID_NOT_FOUND if that is not possible or not allowed.
        """

    def is_too_large(self, group: Group) -> bool:
        """True for a classic group that cannot be converted in one step."""

    def upgrade_in_turns(
        self, group: Group, join: Callable[[Reply, Now], Outcome], reply: Reply, now: Now
    ) -> None:
        """Begin to convert a large classic group, and answer the heartbeat `join` at the end. Raises KafkaError:
        GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED.
        """

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], update: Update) -> bool:
        """Convert the group to a classic one without the leaving members, if possible; adds its records to `update`.
        Returns whether it did.
        """

    def forget_timers(self, group_id: str, member_id: str) -> None:
        """The member was removed or has changed its protocol."""


class ConsumerGroups(GroupsOfType[ConsumerGroup]):
    """The consumer groups of one partition of `__consumer_offsets`."""

    group_class = ConsumerGroup
    metadata_key = ConsumerGroupMetadataKey
    member_key = ConsumerGroupMemberMetadataKey

    def __init__(self, context: GroupContext) -> None:
        super().__init__(context)
        self.migration: Migration | None = None
        self.sessions = Sessions("consumer", context.timers, self.member, self.fence)
        self.assignments = Assignments(context, self.sessions)

    # -- ConsumerGroupHeartbeat

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, version: int, reply: Reply, now: Now
    ) -> Outcome:
        """Join, stay or leave. Errors are in the answer, with a message."""
        update = Update(now, client.may_describe)
        try:
            check_request(request, version, self.assignments.assignor_names())
            self._context.groups.check_may_change(request.group_id)
            if self._upgrade_in_turns(request, client, version, reply, now):
                return Outcome()
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                response = self._leave(request, update)
            else:
                response = self._join_or_stay(request, client, update)
        except KafkaError as error:
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            # Members may already have been asked to rejoin.
            return Outcome(answers=[*update.answers, (reply, response)])
        update.answers.append((reply, response))
        return update.outcome()

    def _upgrade_in_turns(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, version: int, reply: Reply, now: Now
    ) -> bool:
        """True if the member joins a large classic group, and is answered after its upgrade. A request that would be
        refused then must not begin one, and interrupts no rebalance. Raises KafkaError: GROUP_ID_NOT_FOUND,
        GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION.
        """
        group = self._context.groups.get(request.group_id)
        if request.member_epoch != JOIN_EPOCH or self.migration is None or group is None:
            return False
        if group.type is not GroupType.CLASSIC or group.is_empty():
            return False
        before = ConsumerMember(request.member_id)
        self._check_memory(ConsumerGroup(group.group_id), before, with_request(before, request, client))
        check_pattern(request.subscribed_topic_regex or "")
        if not self.migration.is_too_large(group):
            return False
        self.migration.upgrade_in_turns(group, partial(self.heartbeat, request, client, version), reply, now)
        return True

    def _join_or_stay(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, update: Update
    ) -> ConsumerGroupHeartbeatResponse:
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group_to_join(request.group_id, update) if joins else self.group(request.group_id)
        self.check_room(group, request.member_id)
        member_id = request.member_id or self.new_member_id()
        before = self._member_of(group, member_id, request, update)
        after = with_request(before, request, client)
        self._check_memory(group, before, after)
        member = self.assignments.update_member(group, before, after, reported_partitions(request), update)
        self.sessions.renew(group.group_id, member_id, self._session_timeout_ms(group.group_id), update.now)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=consumer_heartbeat_interval_ms(self._context, group.group_id),
        )
        if joins or is_full_request(request) or before.assigned != member.assigned:
            response.assignment = assignment_of(member)
        return response

    # -- lookup

    def _group_to_join(self, group_id: str, update: Update) -> ConsumerGroup:
        """The group, or a new one that is not written yet. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self._context.groups.get(group_id)
        if group is None:
            return ConsumerGroup(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group.type is GroupType.CLASSIC and group.is_empty():
            update.records += group.tombstones()
            return ConsumerGroup(group_id)
        if group.type is GroupType.CLASSIC and self.migration is not None:
            return self.migration.upgrade(group, update)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED."""
        self._check_room(group, member_id, self._context.settings().group_consumer_max_size)

    def _check_memory(self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED."""
        growth = 0 if after.member_id in group.members else MEMBER_BYTES
        if after.topic_names is not before.topic_names:
            growth += size_of_names(after.topic_names) - size_of_names(before.topic_names)
        self._context.groups.memory.check_room(growth)

    def new_member_id(self) -> str:
        return uuid_to_string(random_uuid(self._context.chance))

    def _member_of(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, update: Update
    ) -> ConsumerMember:
        """The current or new member. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
        FENCED_INSTANCE_ID.
        """
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is not None:
            static = group.static_member(request.instance_id)
            if joins and static is None:
                return group.members.get(member_id) or ConsumerMember(member_id)
            if joins and static is not None:
                if not static.is_classic and static.epoch != STATIC_LEAVE_EPOCH:
                    raise KafkaError(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {member_id} with instance id {request.instance_id} cannot join the group "
                        f"because the instance id is owned by {static.member_id} member.",
                    )
                return self.replace(group, static, member_id, update)
            member = self.checked_static_member(static, member_id, request.instance_id)
        elif joins:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            member = group.member(member_id)
        check_epoch(member, request)
        return member

    def checked_static_member(
        self, static: ConsumerMember | None, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if static is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if static.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {static.member_id}.",
            )
        return static

    def replace(self, group: ConsumerGroup, before: ConsumerMember, member_id: str, update: Update) -> ConsumerMember:
        """A static member has returned, usually with a new id: it takes over all state of the old member."""
        member = before.changed(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=0)
        group_id = group.group_id
        target = group.targets.get(before.member_id, {})
        if member_id != before.member_id:
            # With an unchanged id they would cancel the session that starts now.
            update.records += records.member_tombstones(group_id, before.member_id)
            came = f"static member {before.instance_id} returned as {member_id}"
            note_member_fenced(update.notes, group_id, before.member_id, came)
        update.records += [
            records.member_metadata(group_id, member),
            records.target_assignment(group_id, member_id, target),
            records.current_assignment(group_id, member),
        ]
        return member

    # -- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest, update: Update) -> ConsumerGroupHeartbeatResponse:
        """Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        group = self.group(request.group_id)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            static = group.static_member(request.instance_id)
            member = self.checked_static_member(static, request.member_id, request.instance_id)
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                # Its partitions are reserved for it, in an epoch below all others.
                assigned = {topic_id: dict.fromkeys(owned, 0) for topic_id, owned in member.assigned.items()}
                gone = member.changed(epoch=STATIC_LEAVE_EPOCH, revoking={}, assigned=assigned)
                update.records.append(records.current_assignment(group.group_id, gone))
                log.info("group %s: static member %s leaves temporarily", group.group_id, member.member_id)
                return response
        self.remove(group, [member], update, f"{member.member_id} left")
        return response

    def remove(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], update: Update, cause: str) -> None:
        """Remove members, which may convert the group to a classic one."""
        if not leaving:
            return
        if self.migration is not None and self.migration.downgrade(group, leaving, update):
            return
        self.assignments.remove(group, leaving, update, cause)

    def _remove(self, group: ConsumerGroup, member: ConsumerMember, update: Update, cause: str) -> None:
        self.remove(group, [member], update, cause)

    def _session_timeout_ms(self, group_id: str) -> int:
        return consumer_session_timeout_ms(self._context, group_id)

    # -- descriptions

    def describe(self, group_id: str) -> Description[DescribedGroup, Member]:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        return self.group(group_id).describe(self._context.image().topics, self.assignments.assignor_names()[0])

    # -- the machine

    def _member_removed(self, group_id: str, member_id: str) -> None:
        self.forget_timers(group_id, member_id)

    def _group_removed(self, group_id: str) -> None:
        self.assignments.forget(group_id)

    def forget_timers(self, group_id: str, member_id: str) -> None:
        """Cancel all timers of the member."""
        self.sessions.forget(group_id, member_id)
        if self.migration is not None:
            self.migration.forget_timers(group_id, member_id)

    def loaded(self, now: Now) -> Outcome:
        """The whole log has been replayed: start the sessions."""
        self.assignments.loaded()
        topics = self._context.image().topics
        for group in self._groups():
            # The previous coordinator may have missed tombstones and left partitions assigned to former members.
            is_whole = group.assigns_each_once(topics) and not group.targets_without_member()
            group.must_reassign = not is_whole and group.assignment_epoch == group.epoch
            session_timeout_ms = self._session_timeout_ms(group.group_id)
            for member in group.members.values():
                self.sessions.renew(group.group_id, member.member_id, session_timeout_ms, now)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                    self.sessions.expect_revocation(group.group_id, member, now)
        return Outcome()

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        """Topics were created, deleted, extended or moved. Groups check their topics at the next heartbeat."""
        names = self.assignments.metadata_changed(delta)
        if names:
            for group in self._groups():
                if any(group.is_subscribed_to(name) for name in names):
                    group.request_metadata_refresh()
        return Outcome()

    def give_up(self) -> list[Reply]:
        """Nothing waits here."""
        return []
