"""Core: online migration between classic and consumer groups (KIP-848).

Only this file and the two that convert groups, `upgrades.py` and `downgrades.py`, know both kinds. A classic group of
consumers becomes a consumer group when the first member with the consumer protocol joins; every member keeps its
partitions. From then on the group serves members of both protocols. Members with the classic protocol join, sync and
send heartbeats as before, but their generation is their member epoch, their assignment is computed here, and they do
not wait for other members. When the last member with the consumer protocol has left, the group becomes classic again.
group.consumer.migration.policy decides which conversions are allowed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from barnabas.broker.coordinator.outcome import Now, Outcome, Reply, Timers
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_groups import ClassicGroups
from barnabas.broker.groups.classic_member import MemberProtocol
from barnabas.broker.groups.consumer_group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from barnabas.broker.groups.consumer_groups import ConsumerGroups
from barnabas.broker.groups.consumer_member import ConsumerMember, MemberState, Partitions, partitions_of
from barnabas.broker.groups.conversions import Conversions
from barnabas.broker.groups.downgrades import Downgrades, embedded_assignment
from barnabas.broker.groups.group import Client, Group, GroupContext
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.limits import MOST_ELEMENTS_READ
from barnabas.broker.groups.target_assignment import TargetAssignment
from barnabas.broker.groups.upgraded_members import classic_metadata, partitions_by_id
from barnabas.broker.groups.upgrades import Join, Upgrades
from barnabas.protocol.embedded_consumer import read_subscription
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
"""JoinGroup version."""
FIRST_VERSION_WITH_MANY = 3
"""LeaveGroup version that removes several members."""


def join_timer(group_id: str, member_id: str) -> Hashable:
    """Timer of a member that was asked to rejoin."""
    return ("consumer-join", group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> Hashable:
    """Timer of a member that has joined and must send SyncGroup."""
    return ("consumer-sync", group_id, member_id)


def with_consumers(context: GroupContext, classic: ClassicGroups, timers: Timers) -> GroupMigration:
    """The consumer groups beside the classic ones, and the way between them."""
    return GroupMigration(context, classic, ConsumerGroups(context), timers)


class GroupMigration:
    """Implements `broker.groups.consumer_groups.Migration` and `broker.groups.classic_groups.OtherKind`."""

    def __init__(
        self, context: GroupContext, classic: ClassicGroups, consumer: ConsumerGroups, timers: Timers
    ) -> None:
        """`timers` run for frozen groups, too."""
        self._context = context
        self.consumer = consumer
        self._conversions = Conversions(context.groups, timers)
        self._upgrades = Upgrades(context, classic, consumer, self._conversions)
        self._downgrades = Downgrades(context, classic, consumer, self._conversions)
        classic.other_kind = self
        consumer.migration = self

    # -- conversions

    def upgrade(self, group: Group, update: Update) -> ConsumerGroup:
        """Convert a classic group to a consumer group with the same members. Raises KafkaError GROUP_ID_NOT_FOUND."""
        assert isinstance(group, ClassicGroup)
        return self._upgrades.upgrade(group, update)

    def is_too_large(self, group: Group) -> bool:
        """True for a classic group that cannot be converted in one step."""
        assert isinstance(group, ClassicGroup)
        return self._upgrades.take_turns(group)

    def upgrade_in_turns(self, group: Group, join: Join, reply: Reply, now: Now) -> None:
        """Begin to convert a large classic group, and answer the heartbeat `join` at the end. Raises KafkaError:
        GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED.
        """
        assert isinstance(group, ClassicGroup)
        self._upgrades.begin_in_turns(group, join, reply, now)

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], update: Update) -> bool:
        """Convert the group to a classic one if the remaining members allow it; `update` gets the records. Returns
        whether it did.
        """
        gone = {member.member_id for member in leaving}
        staying = [member for member in group.members.values() if member.member_id not in gone]
        if not staying or not all(member.is_classic for member in staying):
            return False
        if not self._downgrades.are_allowed(len(staying)):
            return False
        reason = f"{', '.join(sorted(gone))} left and used the consumer protocol"
        self._downgrades.become_classic(group, staying, group.ids_with(None, None), reason, update)
        return True

    def give_up(self) -> list[Reply]:
        """The leadership has moved: replies that still wait."""
        return self._conversions.give_up()

    # -- JoinGroup of a consumer group

    def join(self, request: JoinGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Raises KafkaError: INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID.
        """
        group = self.consumer.group(request.group_id)
        if self._context.settings().group_consumer_migration_policy.lower() == "disabled":
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or self.consumer.new_member_id()
        self.consumer.check_room(group, member_id)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports_classic_protocols(request.protocol_type, names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if (
            not request.member_id
            and request.group_instance_id is None
            and version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
        ):
            response = JoinGroupResponse(member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED)
            return Outcome(answers=[(reply, response)])
        try:
            subscription = read_subscription(request.protocols[0].metadata, MOST_ELEMENTS_READ)
        except MalformedMessage:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None
        update = Update(now, client.may_describe)
        static = group.static_member(request.group_instance_id)
        before = self._joining(group, static, request, member_id, update)
        rebalance_timeout_ms = request.session_timeout_ms
        if version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
            rebalance_timeout_ms = max(request.rebalance_timeout_ms, 0)
        protocols = (MemberProtocol(each.name, each.metadata) for each in request.protocols)
        after = before.changed(
            instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
            rack_id=before.rack_id if subscription.rack_id is None else subscription.rack_id,
            client_id=client.client_id,
            client_host=client.host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            topic_names=frozenset(subscription.topics),
            topic_pattern="",
            classic=classic_metadata(request.session_timeout_ms, protocols),
        )
        reported = partitions_by_id(subscription.owned_partitions, self._context.image().topics)
        if static is not None and self._replaces_the_last(group, static):
            member = self._join_and_downgrade(group, static, (before, after), reported, update)
        else:
            member = self.consumer.assignments.update_member(group, before, after, reported, update)
            self._expect_sync(group.group_id, member, now)
        response = JoinGroupResponse(
            member_id=member_id,
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=names[0],
        )
        update.answers.append((reply, response))
        return update.outcome()

    def _joining(
        self,
        group: ConsumerGroup,
        static: ConsumerMember | None,
        request: JoinGroupRequest,
        member_id: str,
        update: Update,
    ) -> ConsumerMember:
        """The current or new member. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if request.group_instance_id is None or (static is None and not request.member_id):
            return group.members.get(member_id) or ConsumerMember(member_id)
        if static is not None and not request.member_id:
            return self.consumer.replace(group, static, member_id, update)
        return self.consumer.checked_static_member(static, member_id, request.group_instance_id)

    def _replaces_the_last(self, group: ConsumerGroup, static: ConsumerMember) -> bool:
        """True if this was the last member with the consumer protocol, returning with the classic one."""
        others_are_classic = group.classic_members == len(group.members) - 1 and not static.is_classic
        return others_are_classic and self._downgrades.are_allowed(len(group.members))

    def _join_and_downgrade(
        self,
        group: ConsumerGroup,
        static: ConsumerMember,
        change: tuple[ConsumerMember, ConsumerMember],
        reported: Partitions,
        update: Update,
    ) -> ConsumerMember:
        joined, epoch = self.consumer.assignments.update_subscription(group, *change, update)
        member = joined.after
        is_stale = group.assignment_epoch < epoch
        if not is_stale:
            target = TargetAssignment(group.assignment_epoch, group.target_of(member))
            member = self.consumer.assignments.reconcile(group, joined, target, reported, update)
        staying = [member if each is static else each for each in group.members.values()]
        ids = group.ids_with(static.member_id, member.member_id)
        reason = ""
        if is_stale:
            reason = f"{member.member_id} changed its protocol, and the assignment is outdated"
        elif not all(each.is_reconciled_to(epoch) for each in staying):
            reason = f"{member.member_id} changed its protocol, and not all members have reached their targets"
        self._downgrades.become_classic(group, staying, ids, reason, update)
        return member

    # -- SyncGroup, Heartbeat and LeaveGroup of a consumer group

    def sync(self, request: SyncGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS.
        """
        group = self.consumer.group(request.group_id)
        member = self._classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        assert member.classic is not None
        protocol = member.classic.supported_protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            protocol.name,
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group.group_id, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._context.timers.cancel(sync_timer(group.group_id, member.member_id))
        self.consumer.sessions.renew(group.group_id, member.member_id, member.session_timeout_ms, now)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=embedded_assignment(
                partitions_of(member.assigned), protocol.metadata, self._context.image().topics
            ),
        )
        return Outcome(answers=[(reply, response)])

    def heartbeat(self, request: HeartbeatRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
        group = self.consumer.group(request.group_id)
        member = self._classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        self.consumer.sessions.renew(group.group_id, member.member_id, member.session_timeout_ms, now)
        code = ErrorCode.NONE
        if self._has_to_join(group, member, now):
            code = ErrorCode.REBALANCE_IN_PROGRESS
            self._expect_join(group.group_id, member, now)
        return Outcome(answers=[(reply, HeartbeatResponse(error_code=code))])

    def _has_to_join(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> bool:
        """True if the member must rejoin to revoke or receive partitions."""
        if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_in_vain(member):
            return True
        # Heartbeats of the consumer protocol compute a new assignment when one is due. If no member sends any, because
        # the group may not become classic, a classic member's JoinGroup has to do it.
        is_alone = group.classic_members == len(group.members)
        return is_alone and group.assignment_epoch < group.epoch and self.consumer.assignments.may_assign(group, now)

    def leave(self, request: LeaveGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Remove members, whichever protocol they use."""
        group = self.consumer.group(request.group_id)
        many = version >= FIRST_VERSION_WITH_MANY
        asked = request.members if many else [MemberIdentity(member_id=request.member_id)]
        leaving: dict[str, ConsumerMember] = {}
        results: list[MemberResponse] = []
        for who in asked:
            result = MemberResponse(member_id=who.member_id, group_instance_id=who.group_instance_id)
            try:
                member = self._leaving(group, who)
                leaving[member.member_id] = member
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        update = Update(now)
        response = LeaveGroupResponse(members=results) if many else LeaveGroupResponse(error_code=results[0].error_code)
        update.answers.append((reply, response))
        self.consumer.remove(group, list(leaving.values()), update, f"{', '.join(leaving)} left")
        return update.outcome()

    def _leaving(self, group: ConsumerGroup, who: MemberIdentity) -> ConsumerMember:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if who.group_instance_id is None:
            return group.member(who.member_id)
        static = group.static_member(who.group_instance_id)
        if static is not None and not who.member_id:
            # An admin client removes a static member by its instance id.
            return static
        return self.consumer.checked_static_member(static, who.member_id, who.group_instance_id)

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerMember:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
        if instance_id is None:
            member = group.member(member_id)
        else:
            static = group.static_member(instance_id)
            member = self.consumer.checked_static_member(static, member_id, instance_id)
        if not member.is_classic:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
        if generation != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    # -- timers

    def _expect_join(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """The member was notified of a rebalance, by which it revokes partitions: limit the time until it rejoins."""
        timer = join_timer(group_id, member.member_id)
        if self._context.timers.deadline_ms(timer) is None:
            fence = partial(self.consumer.fence, group_id, member.member_id, "it did not rejoin in time")
            self._context.timers.schedule(timer, now.monotonic_ms + member.rebalance_timeout_ms, fence)

    def _expect_sync(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        self._context.timers.cancel(join_timer(group_id, member.member_id))
        self.consumer.sessions.renew(group_id, member.member_id, member.session_timeout_ms, now)
        fence = partial(self.consumer.fence, group_id, member.member_id, "it did not sync in time")
        deadline_ms = now.monotonic_ms + member.rebalance_timeout_ms
        self._context.timers.schedule(sync_timer(group_id, member.member_id), deadline_ms, fence)

    def forget_timers(self, group_id: str, member_id: str) -> None:
        """The member was removed or has changed its protocol."""
        self._context.timers.cancel(join_timer(group_id, member_id))
        self._context.timers.cancel(sync_timer(group_id, member_id))
