"""Core: JoinGroup of classic groups: new members, members that join again, and static members that return (KIP-345)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from barnabas.broker.coordinator.outcome import Now, Outcome, Reply
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_member import ClassicMember, MemberProtocol
from barnabas.broker.groups.classic_rebalance import ClassicRebalances
from barnabas.broker.groups.classic_state import ClassicState
from barnabas.broker.groups.decision_notes import note_member_fenced
from barnabas.broker.groups.group import Client, Group, GroupContext
from barnabas.broker.groups.limits import MOST_MEMBERS
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.runtime.uuids import random_uuid
from barnabas.settings.broker import BrokerSettings

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9
"""JoinGroup version."""


@dataclass(frozen=True, slots=True, eq=False)
class Join:
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


class ClassicJoins:
    def __init__(self, context: GroupContext, rebalances: ClassicRebalances) -> None:
        self.rebalances = rebalances
        self._context = context
        self._groups = context.groups

    def join(self, found: Group | None, join: Join) -> Outcome:
        """Join the group that was found, or a new one. The answer may wait for the other members."""
        request = join.request
        group = found if isinstance(found, ClassicGroup) else self._create(found, join)
        if not group.accepts(request.member_id, most_members(self._context.settings())):
            # Members that joined first have precedence; a member without room loses its place to one of them.
            self.rebalances.leave(group, request.member_id, join.outcome)
            join.answer(JoinGroupResponse(member_id="", error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
            self.rebalances.complete_join_if_all_joined(group, join.outcome, join.now)
            return join.outcome
        if not group.supports(request.protocol_type, join.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group.check_memory(request.member_id, join.protocols, self._groups.memory)
        if not request.member_id:
            self._join_new(group, join)
        elif request.member_id in group.pending_join:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "static members get no member id to join with")
            self._add(group, request.member_id, join)
        else:
            self._join_again(group, join)
        return join.outcome

    def _create(self, found: Group | None, join: Join) -> ClassicGroup:
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

    def _creation_failed(self, group: ClassicGroup, found: Group | None, join: Join, error: KafkaError) -> Outcome:
        log.warning("the new group %s cannot be written: %s", group.group_id, error)
        self.rebalances.cancel_timers(group)
        group.waiting()
        group.die()
        if found is None:
            self._groups.remove(group.group_id)
        else:
            self._groups.put(found)
        return Outcome(answers=[(join.reply, JoinGroupResponse(error_code=error.code))])

    def _join_new(self, group: ClassicGroup, join: Join) -> None:
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

    def _add(self, group: ClassicGroup, member_id: str, join: Join) -> None:
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

    def _join_again(self, group: ClassicGroup, join: Join) -> None:
        """Handle a JoinGroup of an existing member."""
        request = join.request
        member = group.check_member(request.member_id, request.group_instance_id)
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

    def _update(self, group: ClassicGroup, member: ClassicMember, join: Join) -> None:
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

    def _replace(self, group: ClassicGroup, member: ClassicMember, member_id: str, join: Join) -> None:
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

    def _keep_assignment(self, group: ClassicGroup, member: ClassicMember, before: _Before, join: Join) -> None:
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
        self, group: ClassicGroup, member: ClassicMember, before: _Before, join: Join, error: KafkaError
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


@dataclass(frozen=True, slots=True)
class _Before:
    """State of a static member before it was replaced."""

    leader_id: str | None
    """Leader of the group at that time."""
    member_id: str
    protocols: tuple[MemberProtocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int


def most_members(settings: BrokerSettings) -> int:
    return min(settings.group_max_size, MOST_MEMBERS)
