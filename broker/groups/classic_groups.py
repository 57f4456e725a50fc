"""Core: requests of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Members join, the leader gets the list of members and makes the assignment, and all members sync to get their parts
(KIP-62, KIP-345, KIP-394). Subscriptions and assignments pass through uninterpreted, except that the coordinator checks
which partitions a returning static member had to revoke. Only a finished generation is written.

Knows no other kind of group: requests for one are passed to `other_kind`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from barnabas.broker.coordinator.outcome import Now, Outcome, Reply
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_member import ClassicMember, MemberProtocol, member_protocols, metadata_of
from barnabas.broker.groups.classic_rebalance import ClassicRebalances
from barnabas.broker.groups.classic_state import ClassicState
from barnabas.broker.groups.decision_notes import note_assigned, note_member_fenced
from barnabas.broker.groups.description import Description
from barnabas.broker.groups.group import Client, Group, GroupContext, GroupType
from barnabas.broker.groups.limits import MOST_MEMBERS
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.schema import Message
from barnabas.runtime.uuids import random_uuid
from barnabas.settings.broker import BrokerSettings

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9
"""JoinGroup version."""

FIRST_VERSION_WITH_MANY = 3
"""LeaveGroup version that removes several members."""


class OtherKind(Protocol):
    """Serves members that use the classic protocol in a non-empty group of another kind."""

    def join(self, request: JoinGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome: ...

    def sync(self, request: SyncGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome: ...

    def heartbeat(self, request: HeartbeatRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome: ...

    def leave(self, request: LeaveGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Join:
    """A JoinGroup in progress."""

    request: JoinGroupRequest
    client: Client
    version: int
    reply: Reply
    now: Now
    protocols: tuple[MemberProtocol, ...]
    outcome: Outcome

    @property
    def rebalance_timeout_ms(self) -> int:
        request = self.request
        if self.version < FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
            return request.session_timeout_ms
        return max(request.rebalance_timeout_ms, 0)

    @property
    def reason(self) -> str:
        return self.request.reason or "not provided"

    def answer(self, response: JoinGroupResponse) -> None:
        self.outcome.answers.append((self.reply, response))


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
        join = _Join(request, client, version, reply, now, protocols, Outcome(replay=False))
        group = found if isinstance(found, ClassicGroup) else self._create(found, join)
        if not group.accepts(request.member_id, _max_size(settings)):
            # Members that joined first have precedence; a member without room loses its place to one of them.
            self.rebalances.leave(group, request.member_id, join.outcome)
            join.answer(JoinGroupResponse(member_id="", error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
            self.rebalances.complete_join_if_all_joined(group, join.outcome, now)
            return join.outcome
        if not group.supports(request.protocol_type, protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not group.has_memory_for(request.member_id, protocols):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not request.member_id:
            self._join_new(group, join)
        elif request.member_id in group.pending_join:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "static members get no member id to join with")
            self._add(group, request.member_id, join)
        else:
            self._join_again(group, join)
        return join.outcome

    def _other_kind(self, group: Group | None) -> OtherKind | None:
        """The server of that group if it is a non-empty group of another kind; None if it is served here."""
        is_other = group is not None and group.type is GroupType.CONSUMER and not group.is_empty()
        return self.other_kind if is_other else None

    def _create(self, found: Group | None, join: _Join) -> ClassicGroup:
        """Create the group with its first member; it replaces an empty group of another kind."""
        request = join.request
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group = ClassicGroup(request.group_id, join.now.wall_ms)
        if not group.supports(request.protocol_type, join.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if found is not None:
            join.outcome.records += found.tombstones()
        join.outcome.records.append(group.record())
        join.outcome.failed = partial(self._creation_failed, group, found, join)
        self._groups.put(group)
        return group

    def _creation_failed(self, group: ClassicGroup, found: Group | None, join: _Join, error: KafkaError) -> Outcome:
        log.warning("the new group %s cannot be written: %s", group.group_id, error)
        self.rebalances.cancel_timers(group)
        group.waiting()
        group.die()
        if found is None:
            self._groups.remove(group.group_id)
        else:
            self._groups.put(found)
        return Outcome(answers=[(join.reply, JoinGroupResponse(error_code=error.code))])

    def _join_new(self, group: ClassicGroup, join: _Join) -> None:
        """Handle a JoinGroup without a member id."""
        request = join.request
        instance_id = request.group_instance_id
        prefix = join.client.client_id if instance_id is None else instance_id
        member_id = f"{prefix}-{self._draw_id()}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is None:
                self._add(group, member_id, join)
            else:
                self._replace(group, group.members[old_id], member_id, join)
        elif join.version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED:
            # The client joins again with that id. If it gives up before, no member without a client is left behind
            # (KIP-394).
            self.rebalances.watch_pending(group, member_id, request.session_timeout_ms, join.now)
            join.answer(JoinGroupResponse(member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._add(group, member_id, join)

    def _draw_id(self) -> str:
        drawn = random_uuid(self._context.chance).hex()
        return "-".join((drawn[:8], drawn[8:12], drawn[12:16], drawn[16:20], drawn[20:]))

    def _add(self, group: ClassicGroup, member_id: str, join: _Join) -> None:
        request = join.request
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            join.client,
            join.rebalance_timeout_ms,
            request.session_timeout_ms,
            join.protocols,
            is_new=True,
        )
        if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.await_join(member, join.reply)
        self.rebalances.watch_new(group, member, join.now)
        self.rebalances.proceed(group, f"{member_id} joins; reason given: {join.reason}", join.outcome, join.now)

    def _join_again(self, group: ClassicGroup, join: _Join) -> None:
        """Handle a JoinGroup of an existing member."""
        request = join.request
        member = group.check_member(request.member_id, request.group_instance_id)
        if group.is_empty():
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        is_leader = group.leader_id == member.member_id
        is_unchanged = member.protocols == join.protocols
        if is_unchanged and (
            group.state is ClassicState.COMPLETING_REBALANCE or (group.state is ClassicState.STABLE and not is_leader)
        ):
            # A retry: its answer may have been lost.
            self.rebalances.watch(group, member, member.session_timeout_ms, join.now)
            join.answer(group.join_response(member))
        else:
            # A leader that rejoins wants a new assignment, for reasons that may not show in its protocols.
            self._update(group, member, join)
            reason = f"{member.member_id} rejoins; reason given: {join.reason}"
            self.rebalances.proceed(group, reason, join.outcome, join.now)

    def _update(self, group: ClassicGroup, member: ClassicMember, join: _Join) -> None:
        """Take protocols and timeouts from the JoinGroup and let it wait."""
        group.set_protocols(member, join.protocols)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.request.session_timeout_ms
        # Kafka drops the JoinGroup that was waiting. Here it is answered, because later answers of its connection queue
        # behind it; a client that still reads the answer joins again.
        superseded = JoinGroupResponse(member_id=member.member_id, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        group.answer_join(member, superseded, join.outcome)
        group.await_join(member, join.reply)

    # -- static members (KIP-345)

    def _replace(self, group: ClassicGroup, member: ClassicMember, member_id: str, join: _Join) -> None:
        """A static member returned without its member id: it gets a new one, and the holder of the old one is fenced.
        """
        before = _Before(
            group.leader_id, member.member_id, member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        )
        came = f"static member {member.group_instance_id} returned as {member_id}"
        note_member_fenced(join.outcome.notes, group.group_id, member.member_id, came)
        self._fence(group, member, join.outcome)
        member.is_new = False
        has_unrevoked_partitions = group.has_unrevoked_partitions(member)
        self.rebalances.rename(group, member, member_id, join.now)
        self._update(group, member, join)
        if group.state is not ClassicState.STABLE:
            # In CompletingRebalance the leader may already be assigning to the old id, so the rebalance starts again.
            reason = f"static member {member.group_instance_id} returned; reason given: {join.reason}"
            self.rebalances.proceed(group, reason, join.outcome, join.now)
        elif group.choose_protocol() != group.protocol_name:
            reason = f"static member {member.group_instance_id} changes the protocol; reason given: {join.reason}"
            self.rebalances.proceed(group, reason, join.outcome, join.now)
        elif has_unrevoked_partitions:
            # Partitions that it had to revoke would stay unowned: no other member requests the generation that
            # reassigns them.
            reason = f"static member {member.group_instance_id} returned and had partitions to revoke"
            self.rebalances.proceed(group, f"{reason}; reason given: {join.reason}", join.outcome, join.now)
        else:
            self._keep_assignment(group, member, before, join)

    @staticmethod
    def _fence(group: ClassicGroup, member: ClassicMember, outcome: Outcome) -> None:
        fenced = ErrorCode.FENCED_INSTANCE_ID
        join_response = JoinGroupResponse(member_id=member.member_id, protocol_name=None, error_code=fenced)
        group.answer_join(member, join_response, outcome)
        group.answer_sync(member, SyncGroupResponse(error_code=fenced), outcome)

    def _keep_assignment(self, group: ClassicGroup, member: ClassicMember, before: _Before, join: _Join) -> None:
        """Only the id changes, so there is no rebalance. To keep a leader from assigning again, the answer sets
        SkipAssignment (KIP-814) or, for versions without that field, names another leader.
        """
        response = group.join_response(member)
        if join.version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
            response.skip_assignment = group.leader_id == member.member_id
        else:
            response.leader = before.leader_id or ""
            response.members = []
        group.answer_join(member, response, join.outcome)
        join.outcome.records.append(group.record())
        join.outcome.failed = partial(self._replacement_failed, group, member, before, join)

    def _replacement_failed(
        self, group: ClassicGroup, member: ClassicMember, before: _Before, join: _Join, error: KafkaError
    ) -> Outcome:
        log.warning("group %s: static member %s cannot be written: %s", group.group_id, member.member_id, error)
        group.set_protocols(member, before.protocols)
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        member.session_timeout_ms = before.session_timeout_ms
        self.rebalances.rename(group, member, before.member_id, join.now)
        response = JoinGroupResponse(
            error_code=error.code,
            generation_id=group.generation,
            protocol_type=group.kind,
            protocol_name=group.protocol_name,
            leader=before.leader_id or "",
        )
        others = [(reply, answer) for reply, answer in join.outcome.answers if reply is not join.reply]
        return Outcome(answers=[*others, (join.reply, response)])

    # -- SyncGroup

    def sync(self, request: SyncGroupRequest, client: Client, version: int, reply: Reply, now: Now) -> Outcome:
        """Answer with the member's assignment; the leader's request carries all of them. Other members may wait for it.
        """
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
            member.assignment = parts.get(member.member_id, b"")
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
            group.answer_join(member, JoinGroupResponse(member_id=member.member_id, error_code=code), outcome)
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
        max_size = _max_size(self._context.settings())
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


@dataclass(frozen=True, slots=True)
class _Before:
    """State of a static member before it was replaced."""

    leader_id: str | None
    """Leader of the group at that time."""
    member_id: str
    protocols: tuple[MemberProtocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int


def _max_size(settings: BrokerSettings) -> int:
    return min(settings.group_max_size, MOST_MEMBERS)


def _may_be_replaced(group: Group) -> bool:
    """True if a classic group may replace it."""
    return group.is_empty() and group.type is not GroupType.SHARE


def _differs(said: str | None, actual: str | None) -> bool:
    return said is not None and actual is not None and said != actual
