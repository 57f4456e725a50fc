"""Core: requests of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Members join, the leader gets the list of members and makes the assignment, and all members sync to get their parts
(KIP-62, KIP-345, KIP-394). Subscriptions and assignments pass through uninterpreted, except that the coordinator checks
which partitions a returning static member had to revoke. Only a finished generation is written.

Knows no other kind of group: requests for one are passed to `other_kind`.
"""

from __future__ import annotations

import logging
from typing import Protocol

from barnabas.broker.coordinator.outcome import Now, Outcome, Reply
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_joins import ClassicJoins, Join, most_members
from barnabas.broker.groups.classic_member import member_protocols, metadata_of
from barnabas.broker.groups.classic_rebalance import ClassicRebalances
from barnabas.broker.groups.classic_state import ClassicState
from barnabas.broker.groups.decision_notes import note_assigned
from barnabas.broker.groups.description import Description
from barnabas.broker.groups.group import Client, Group, GroupContext, GroupType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.schema import Message

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_MANY = 3
"""LeaveGroup version that removes several members."""


class OtherKind(Protocol):
    """Serves members that use the classic protocol in a non-empty group of another kind."""

    def join(self, request: JoinGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome: ...

    def sync(self, request: SyncGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome: ...

    def heartbeat(self, request: HeartbeatRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome: ...

    def leave(self, request: LeaveGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome: ...


class ClassicGroups:
    """The classic groups of one partition of `__consumer_offsets`.

    Unlike the commands of other kinds of groups, these change the live group before its records are written: most of
    its state (waiting requests, members that have joined, timers) is in no record, and replaying a finished generation
    over the live group would lose it. So records are replayed only while loading (`Outcome.replay`), and a command
    whose write fails restores the group or its answers (`Outcome.failed`), as in Kafka's GroupMetadataManager.

    Commands raise KafkaError for an answer that holds only an error.
    """

    def __init__(self, context: GroupContext, other_kind: OtherKind | None = None) -> None:
        self.other_kind = other_kind
        self.rebalances = ClassicRebalances(context)
        self._joins = ClassicJoins(context, self.rebalances)
        self._context = context
        self._groups = context.groups

    def find(self, group_id: str) -> ClassicGroup | None:
        """None if the group does not exist or is of another kind."""
        return self.rebalances.find(group_id)

    # -- JoinGroup

    def join(self, request: JoinGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Join the group or rejoin it. The answer may wait for the other members."""
        settings = self._context.settings()
        shortest_ms, longest_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        # Clients ask again after a pause. For REBALANCE_IN_PROGRESS they would do so at once.
        self._groups.check_may_change(request.group_id)
        found = self._groups.get(request.group_id)
        other_kind = self._other_kind(found)
        if other_kind is not None:
            try:
                return other_kind.join(request, client, version, reply, now)
            except KafkaError as error:
                # The refusal of a consumer group names no member, as in Kafka.
                refusal = JoinGroupResponse(member_id="", error_code=error.code)
                return Outcome(answers=[(reply, refusal)], replay=False)
        if found is not None and not isinstance(found, ClassicGroup) and not _may_be_replaced(found):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        protocols = member_protocols(request.protocols)
        return self._joins.join(found, Join(request, client, version, reply, now, protocols, Outcome(replay=False)))

    def _other_kind(self, group: Group | None) -> OtherKind | None:
        """The server of that group if it is a non-empty group of another kind; None if it is served here."""
        is_other = group is not None and group.type is GroupType.CONSUMER and not group.is_empty()
        return self.other_kind if is_other else None

    # -- SyncGroup

    def sync(self, request: SyncGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Answer with the member's assignment; the leader's request carries all of them. Other members may wait for it.
        """
        # Clients join again. Any other error of a group that may not change yet would end them.
        self._groups.check_may_change(request.group_id, ErrorCode.REBALANCE_IN_PROGRESS)
        found = self._groups.get(request.group_id)
        other_kind = self._other_kind(found)
        if other_kind is not None:
            return other_kind.sync(request, client, version, reply, now)
        if not isinstance(found, ClassicGroup) or found.is_empty():
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group = found
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.kind) or _differs(request.protocol_name, group.protocol_name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        outcome = Outcome(replay=False)
        self.rebalances.synced(group, member)
        if group.state is ClassicState.STABLE:
            # A SyncGroup renews the session, so that a slow member does not lose at once what it is given here.
            self.rebalances.watch(group, member, member.session_timeout_ms, now)
            outcome.answers.append((reply, group.sync_response(member)))
            return outcome
        # As with JoinGroup, a superseded request must still be answered.
        superseded = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        group.answer_sync(member, superseded, outcome)
        member.awaiting_sync = reply
        if group.leader_id == member.member_id:
            self._assign(group, request, outcome, now)
        return outcome

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest, outcome: Outcome, now: Now) -> None:
        """Store the leader's assignments and write the generation; the group becomes Stable."""
        parts = {part.member_id: part.assignment for part in request.assignments}
        for member in group.members.values():
            group.set_assignment(member, parts.get(member.member_id, b""))
        refused = list(outcome.answers)
        self.rebalances.hand_out_assignments(group, outcome, now)
        outcome.records.append(group.record())
        group.move(ClassicState.STABLE, now)
        note_assigned(outcome.notes, group)

        def failed(error: KafkaError) -> Outcome:
            log.warning("%r: the assignment cannot be written: %s", group, error)
            response = SyncGroupResponse(error_code=error.code)
            granted = [(waiting, response) for waiting, _ in outcome.answers[len(refused) :]]
            instead = Outcome(answers=[*refused, *granted])
            self.rebalances.refuse_syncs(group, error.code, instead, now)
            self.rebalances.prepare(group, "the assignment could not be written", instead, now)
            return instead

        outcome.failed = failed

    # -- Heartbeat

    def heartbeat(self, request: HeartbeatRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Renew the member's session. The answer reports a rebalance in progress."""
        found = self._groups.get(request.group_id)
        other_kind = self._other_kind(found)
        if other_kind is not None:
            return other_kind.heartbeat(request, client, version, reply, now)
        if not isinstance(found, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = found.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != found.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self.rebalances.watch(found, member, member.session_timeout_ms, now)
        is_asked_to_join = found.state is ClassicState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_asked_to_join else ErrorCode.NONE
        return Outcome(answers=[(reply, HeartbeatResponse(error_code=code))])

    # -- LeaveGroup

    def leave(self, request: LeaveGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Remove the member, or the members listed by member or instance id (KIP-345)."""
        self._groups.check_may_change(request.group_id)
        found = self._groups.get(request.group_id)
        other_kind = self._other_kind(found)
        if other_kind is not None:
            return other_kind.leave(request, client, version, reply, now)
        many = version >= FIRST_VERSION_WITH_MANY
        leaving = request.members if many else [MemberIdentity(member_id=request.member_id)]
        outcome = Outcome(replay=False)
        group = found if isinstance(found, ClassicGroup) else None
        results = [
            MemberResponse(
                member_id=who.member_id,
                group_instance_id=who.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._remove(group, who, outcome),
            )
            for who in leaving
        ]
        gone = [result.member_id for result in results if result.error_code == ErrorCode.NONE]
        if group is not None and gone:
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                self.rebalances.prepare(group, f"{', '.join(gone)} left", outcome, now)
            else:
                self.rebalances.complete_join_if_all_joined(group, outcome, now)
        others = list(outcome.answers)
        response = LeaveGroupResponse(members=results) if many else LeaveGroupResponse(error_code=results[0].error_code)
        outcome.answers.append((reply, response))
        if outcome.records:

            def failed(error: KafkaError) -> Outcome:
                return Outcome(answers=[*others, (reply, LeaveGroupResponse(error_code=error.code))])

            outcome.failed = failed
        return outcome

    def _remove(self, group: ClassicGroup, who: MemberIdentity, outcome: Outcome) -> ErrorCode:
        """Remove one member that a LeaveGroup names."""
        member_id = who.member_id
        if not member_id:
            # An admin client removes a static member by its instance id.
            found = None if who.group_instance_id is None else group.static_members.get(who.group_instance_id)
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id not in group.pending_join:
            try:
                group.check_member(member_id, who.group_instance_id)
            except KafkaError as error:
                return error.code
        log.info("group %s: %s leaves; reason given: %s", group.group_id, member_id, who.reason or "not provided")
        self.rebalances.leave(group, member_id, outcome)
        return ErrorCode.NONE

    # -- descriptions

    @staticmethod
    def describe(group: ClassicGroup) -> Description[DescribedGroup, DescribedGroupMember]:
        """DescribeGroups entry. Metadata and assignments are included only if the group is Stable."""
        is_stable = group.state is ClassicState.STABLE
        protocol_name = (group.protocol_name or "") if is_stable else ""
        described = DescribedGroup(
            group_id=group.group_id,
            group_state=group.state_name(),
            protocol_type=group.protocol_type,
            protocol_data=protocol_name,
            members=[],
        )
        seen = [(member, member.member_id, member.protocols, member.assignment) for member in group.members.values()]
        members = (
            DescribedGroupMember(
                member_id=member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client.client_id,
                client_host=member.client.host,
                member_metadata=metadata_of(protocols, protocol_name) if is_stable else b"",
                member_assignment=assignment,
            )
            for member, member_id, protocols, assignment in seen
        )
        return Description(described, members)

    # -- migration between kinds

    def interrupt(self, group: ClassicGroup) -> list[tuple[Reply, Message]]:
        """Return the waiting requests with REBALANCE_IN_PROGRESS answers; the group is about to change its kind."""
        outcome = Outcome()
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            if member.awaiting_join is not None:
                group.answer_join(member, JoinGroupResponse(member_id=member.member_id, error_code=code), outcome)
            if member.awaiting_sync is not None:
                group.answer_sync(member, SyncGroupResponse(error_code=code), outcome)
        return outcome.answers

    def adopt(self, group: ClassicGroup, now: Now) -> None:
        """Take over a group that was of another kind; `group.record()` is written by the caller."""
        self._groups.put(group)
        for member in group.members.values():
            self.rebalances.watch(group, member, member.session_timeout_ms, now)

    # -- the log

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Load a finished generation, or remove the group for a tombstone."""
        before = self.find(key.group)
        if before is not None:
            self.rebalances.cancel_timers(before)
            before.die()
        if value is not None:
            self._groups.put(ClassicGroup.from_value(key.group, value))
        elif before is not None:
            self._groups.remove(key.group)

    def loaded(self, now: Now) -> Outcome:
        """The whole log has been replayed: every member gets a full session timeout."""
        outcome = Outcome(replay=False)
        max_size = most_members(self._context.settings())
        for group in self._groups:
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self.rebalances.watch(group, member, member.session_timeout_ms, now)
                if len(group.members) > max_size:
                    self.rebalances.prepare(group, f"it has more than {max_size} members", outcome, now)
                elif group.is_unled:
                    reason = "it was a consumer group, and the previous coordinator did not finish its rebalance"
                    self.rebalances.prepare(group, reason, outcome, now)
        return outcome

    def give_up(self) -> list[Reply]:
        """The leadership has moved: replies that still wait."""
        replies = []
        for group in self._groups:
            if isinstance(group, ClassicGroup):
                replies += group.waiting()
                group.die()
        return replies


def _may_be_replaced(group: Group) -> bool:
    """True if a classic group may replace it."""
    return group.is_empty() and group.type is not GroupType.SHARE


def _differs(said: str | None, actual: str | None) -> bool:
    return said is not None and actual is not None and said != actual
