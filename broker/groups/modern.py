"""Consumer groups (KIP-848): one heartbeat, an assignment made here, and no barrier. A core.

A member tells with its heartbeat what it subscribes to and what it owns, and is told what to give up and what to take.
What is decided here is written and comes back by `replay`; nothing else changes what is durable. Timers are soft: after
a failover every member has a whole session to be heard again.

Knows no other kind of group. Where one has to become the other it asks `migration`.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from broker.coordinator.outcome import Now, Outcome, Reply
from broker.groups import consumer_records as records
from broker.groups.assignors import ASSIGNORS
from broker.groups.consumer_group import ConsumerGroup, ConsumerGroupKey, RefreshDeadline
from broker.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
)
from broker.groups.group import Client, Group, GroupContext, GroupType
from broker.groups.group_configs import (
    consumer_assignment_interval_ms,
    consumer_heartbeat_interval_ms,
    consumer_session_timeout_ms,
)
from broker.groups.pattern_searches import PatternSearches
from broker.groups.reconciliation import Reconciliation
from broker.groups.target_assignment import TargetAssignment, compute_targets, target_records, topic_ids
from broker.groups.told import note_epoch, note_member_fenced, note_targets
from broker.groups.topic_hashes import TopicHashes
from broker.groups.update import Update
from kraft.metadata.delta import MetadataDelta, TopicDelta
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import DescribedGroup
from protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.messages.group_log import ConsumerGroupMemberMetadataKey, ConsumerGroupMetadataKey
from protocol.primitives import uuid_to_string
from protocol.schema import Message
from runtime.uuids import random_uuid

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_MEMBER_ID = 1
"""Of ConsumerGroupHeartbeat: clients make their ids themselves."""

_REFRESH_INTERVAL_MS = (1 << 31) - 1
"""Metadata is looked at again after this time at the latest; whoever hears of a change says so much earlier."""


class Migration(Protocol):
    """Makes consumer groups of classic ones, and the other way round."""

    def upgrade(self, group: Group, update: Update) -> ConsumerGroup:
        """A group with the members of the classic one; adds to `update` what writes it. Raises KafkaError
        GROUP_ID_NOT_FOUND if that is not possible or not allowed.
        """

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], update: Update) -> bool:
        """True: without those who leave the group is a classic one; `update` has what writes it."""

    def forget_timers(self, group_id: str, member_id: str) -> None:
        """The member is gone, or of another kind."""


@dataclass(frozen=True, slots=True)
class Joined:
    """How far a member gets with one heartbeat, or one JoinGroup."""

    before: ConsumerMember
    after: ConsumerMember
    subscription_changed: bool
    """To names or to a pattern."""


def session_timer(group_id: str, member_id: str) -> Hashable:
    return ("consumer-session", group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> Hashable:
    return ("consumer-rebalance", group_id, member_id)


class ConsumerGroups:
    """The consumer groups of one partition of `__consumer_offsets`."""

    def __init__(self, context: GroupContext) -> None:
        self.migration: Migration | None = None
        self._context = context
        self._hashes = TopicHashes()
        self._patterns = PatternSearches(context, self._patterns_found)

    # -- ConsumerGroupHeartbeat

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, version: int, reply: Reply, now: Now
    ) -> Outcome:
        """Join, stay, or leave. What goes wrong is in the answer, in words."""
        update = Update(now)
        try:
            self._check_request(request, version)
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                response = self._leave(request, update)
            else:
                response = self._join_or_stay(request, client, update)
        except KafkaError as error:
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            # Others may have been told already that they have to join again.
            return Outcome(answers=[*update.answers, (reply, response)])
        update.answers.append((reply, response))
        return update.outcome()

    def _check_request(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
        epoch = request.member_epoch
        if version >= FIRST_VERSION_WITH_MEMBER_ID or epoch > 0 or epoch == LEAVE_EPOCH:
            _refuse_empty(request.member_id, "MemberId")
        _refuse_empty(request.group_id, "GroupId")
        _refuse_empty(request.instance_id, "InstanceId")
        _refuse_empty(request.rack_id, "RackId")
        if epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
                )
        elif epoch == STATIC_LEAVE_EPOCH:
            if request.instance_id is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
        elif epoch < STATIC_LEAVE_EPOCH:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
        assignors = self._assignor_names()
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(assignors)}.",
            )

    def _join_or_stay(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, update: Update
    ) -> ConsumerGroupHeartbeatResponse:
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group_to_join(request.group_id, update) if joins else self.group(request.group_id)
        self.check_room(group, request.member_id)
        member_id = request.member_id or self.new_member_id()
        before = self._member_of(group, member_id, request, update)
        changes: dict[str, object] = {"client_id": client.client_id, "client_host": client.host, "classic": None}
        for name, value in (
            ("instance_id", request.instance_id),
            ("rack_id", request.rack_id),
            ("server_assignor", request.server_assignor),
            ("topic_pattern", request.subscribed_topic_regex),
        ):
            if value is not None:
                changes[name] = value
        if request.rebalance_timeout_ms != -1:
            changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
        if request.subscribed_topic_names is not None:
            changes["topic_names"] = frozenset(request.subscribed_topic_names)
        reported = _reported(request.topic_partitions)
        member = self.update_member(group, before, before.changed(**changes), reported, update)
        self.heard(group.group_id, member_id, self._session_timeout_ms(group.group_id), update.now)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=consumer_heartbeat_interval_ms(self._context, group.group_id),
        )
        tells_all = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if joins or tells_all or before.assigned != member.assigned:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(owned))
                    for topic_id, owned in member.assigned.items()
                ]
            )
        return response

    # -- who it is

    def metadata_hash(self, topics: Iterable[str]) -> int:
        """Of these topics as they are now."""
        return self._hashes.of_group(topics, self._context.image())

    def find(self, group_id: str) -> ConsumerGroup | None:
        """None if there is no such group, or it is of another kind."""
        group = self._context.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def group(self, group_id: str) -> ConsumerGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self._context.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    def _group_to_join(self, group_id: str, update: Update) -> ConsumerGroup:
        """A group without records yet if there is none. Raises KafkaError GROUP_ID_NOT_FOUND."""
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
        most = self._context.settings().group_consumer_max_size
        if len(group.members) >= most and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def new_member_id(self) -> str:
        return uuid_to_string(random_uuid(self._context.chance))

    def _member_of(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, update: Update
    ) -> ConsumerMember:
        """The member as it is. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
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
        _check_epoch(member, request)
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
        """A static member that was away, most often under a new id: it takes over all that the old one had."""
        member = before.changed(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=0)
        group_id = group.group_id
        target = group.targets.get(before.member_id, {})
        if member_id != before.member_id:
            # Under its own id they would end the session that begins now, too.
            update.records += records.member_tombstones(group_id, before.member_id)
            came = f"static member {before.instance_id} came again, as {member_id}"
            note_member_fenced(update.notes, group_id, before.member_id, came)
        update.records += [
            records.member_metadata(group_id, member),
            records.target_assignment(group_id, member_id, target),
            records.current_assignment(group_id, member),
        ]
        return member

    # -- what it gets

    def update_member(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        after: ConsumerMember,
        reported: Partitions | None,
        update: Update,
    ) -> ConsumerMember:
        """The member as it is from now on: subscription, group epoch, target, its own next step. Raises KafkaError:
        INVALID_REGULAR_EXPRESSION, FENCED_MEMBER_EPOCH.
        """
        joined, epoch = self.update_subscription(group, before, after, update)
        return self.reconcile(group, joined, self.target(group, epoch, joined, update), reported, update)

    def update_subscription(
        self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, update: Update
    ) -> tuple[Joined, int]:
        """Writes the member if it has changed; gives the epoch of the group, which is a new one if what the group
        subscribes to has changed.
        """
        names_changed = False
        if after != before:
            update.records.append(records.member_metadata(group.group_id, after))
            names_changed = after.topic_names != before.topic_names
        pattern = self._patterns.update(group, before, after, update)
        needs_new_epoch = names_changed or pattern.resolved or group.must_assign_anew
        epoch = group.epoch
        if group.must_assign_anew:
            update.records += [records.target_assignment_tombstone(group.group_id, it) for it in group.strangers()]
        if needs_new_epoch or group.metadata_has_expired(update.now.monotonic_ms):
            cause = _why_anew(group, before, after) if needs_new_epoch else ""
            epoch = self._update_epoch(group, cause, group.topics_with(before, after), update)
            if group.has_partition_metadata:
                update.records.append(records.partition_metadata_tombstone(group.group_id))
        return Joined(before, after, names_changed or pattern.changed), epoch

    def _update_epoch(self, group: ConsumerGroup, cause: str, topics: Iterable[str], update: Update) -> int:
        """The group's epoch: a new one if there is a cause, or the topics are not what they were."""
        metadata_hash = self.metadata_hash(topics)
        epoch = group.epoch
        if cause or metadata_hash != group.metadata_hash:
            epoch += 1
            note_epoch(update.notes, group, epoch, cause or "partitions or racks of its topics have changed")
            update.records.append(records.group_epoch(group.group_id, epoch, metadata_hash))
        group.refresh_deadline = RefreshDeadline(update.now.monotonic_ms + _REFRESH_INTERVAL_MS, epoch)
        return epoch

    def target(self, group: ConsumerGroup, epoch: int, joined: Joined, update: Update) -> TargetAssignment:
        """The target assignment for this member: a new one if the group has a new epoch, but not too often. Who joins
        or leaves within that time counts with the next one.
        """
        member = joined.after
        if group.assignment_epoch >= epoch or not self.may_assign(group, update.now):
            return TargetAssignment(group.assignment_epoch, group.target_of(member))
        names = self._assignor_names()
        preferred = group.preferred_assignor(joined.before, member)
        assign = ASSIGNORS[preferred if preferred in names else names[0]]
        targets = compute_targets(group, member, self._context.image().topics, assign)
        update.records += target_records(group, targets, epoch, update.now.wall_ms)
        note_targets(update.notes, group, epoch, preferred if preferred in names else names[0], len(targets))
        self._context.events.consumer_rebalances += 1
        return TargetAssignment(epoch, targets[member.member_id])

    def may_assign(self, group: ConsumerGroup, now: Now) -> bool:
        """Whether it is long enough since the last target assignment."""
        interval_ms = consumer_assignment_interval_ms(self._context, group.group_id)
        # A clock that was set back must not keep a group without an assignment for long.
        return group.assignment_timestamp_ms == 0 or not 0 <= now.wall_ms - group.assignment_timestamp_ms < interval_ms

    def reconcile(
        self,
        group: ConsumerGroup,
        joined: Joined,
        target: TargetAssignment,
        reported: Partitions | None,
        update: Update,
    ) -> ConsumerMember:
        """The member's next step. Raises KafkaError FENCED_MEMBER_EPOCH."""
        member = joined.after
        if not joined.subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        step = Reconciliation(
            assignment_epoch=target.epoch,
            target=target.partitions,
            subscribed_topics=topic_ids(group.topics_of(member), self._context.image().topics),
            subscription_changed=joined.subscription_changed,
            reported=reported,
            owner_epoch=group.owner_epoch,
        )
        reconciled = step.next_step(member)
        if reconciled == member:
            return member
        update.records.append(records.current_assignment(group.group_id, reconciled))
        if not reconciled.is_classic:
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                self._expect_revocation(group.group_id, reconciled, update.now)
            else:
                self._context.timers.cancel(rebalance_timer(group.group_id, reconciled.member_id))
        return reconciled

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
                # Its partitions wait for it, in an epoch that is older than all others.
                assigned = {topic_id: dict.fromkeys(owned, 0) for topic_id, owned in member.assigned.items()}
                gone = member.changed(epoch=STATIC_LEAVE_EPOCH, revoking={}, assigned=assigned)
                update.records.append(records.current_assignment(group.group_id, gone))
                log.info("group %s: static member %s leaves for a while", group.group_id, member.member_id)
                return response
        self.remove(group, [member], update, f"{member.member_id} left")
        return response

    def remove(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], update: Update, cause: str) -> None:
        """These are not in the group any more. The group has a new epoch; the next heartbeat of anybody makes a new
        assignment.
        """
        if not leaving:
            return
        if self.migration is not None and self.migration.downgrade(group, leaving, update):
            return
        for member in leaving:
            update.records += records.member_tombstones(group.group_id, member.member_id)
        forgotten = self._patterns.forget(group, leaving, update)
        topics = group.topics_without(leaving, forgotten)
        metadata_hash = self.metadata_hash(topics)
        update.records.append(records.group_epoch(group.group_id, group.epoch + 1, metadata_hash))
        left = len(group.members) - len(leaving)
        note_epoch(update.notes, group, group.epoch + 1, f"{cause}; {left or 'no'} members are left")

    # -- timers

    def heard(self, group_id: str, member_id: str, session_timeout_ms: int, now: Now) -> None:
        """The member lives: its session begins anew."""
        fence = partial(self.fence, group_id, member_id, f"nothing was heard from it for {session_timeout_ms} ms")
        self._context.timers.schedule(session_timer(group_id, member_id), now.monotonic_ms + session_timeout_ms, fence)

    def fence(self, group_id: str, member_id: str, reason: str, now: Now) -> Outcome:
        """Timer: out of the group, if it is still in it."""
        group = self.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Outcome()
        update = Update(now)
        note_member_fenced(update.notes, group_id, member_id, reason)
        self.remove(group, [member], update, f"{member_id} is fenced, {reason}")
        return update.outcome()

    def _session_timeout_ms(self, group_id: str) -> int:
        return consumer_session_timeout_ms(self._context, group_id)

    def _expect_revocation(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        deadline_ms = now.monotonic_ms + member.rebalance_timeout_ms
        check = partial(self._check_revocation, group_id, member.member_id, member.epoch)
        self._context.timers.schedule(rebalance_timer(group_id, member.member_id), deadline_ms, check)

    def _check_revocation(self, group_id: str, member_id: str, epoch: int, now: Now) -> Outcome:
        """Timer: whoever has not given up its partitions by now loses them all."""
        group = self.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None or member.epoch != epoch:
            return Outcome()
        waited = f"it did not give up its partitions within {member.rebalance_timeout_ms} ms"
        return self.fence(group_id, member_id, waited, now)

    # -- patterns

    def _patterns_found(self, group: ConsumerGroup, topics: Iterable[str], changed: bool, update: Update) -> None:
        """What the group's patterns find has been searched for and written; `topics` is what it subscribes to now."""
        metadata_hash = self.metadata_hash(topics)
        if changed or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            update.records.append(records.group_epoch(group.group_id, epoch, metadata_hash))
            note_epoch(update.notes, group, epoch, "its patterns find other topics, or those have changed")
            group.refresh_deadline = RefreshDeadline(update.now.monotonic_ms + _REFRESH_INTERVAL_MS, epoch)

    # -- descriptions

    def describe(self, group_id: str) -> DescribedGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        return self.group(group_id).describe(self._context.image().topics, self._assignor_names()[0])

    def _assignor_names(self) -> list[str]:
        """Those that are configured and known here; the first is the default."""
        names = [name for name in self._context.settings().group_consumer_assignors if name in ASSIGNORS]
        return names or list(ASSIGNORS)

    # -- the machine

    def replay(self, key: ConsumerGroupKey, value: Message | None) -> None:
        group_id = key.group_id
        group = self.find(group_id)
        if group is None:
            if value is None:
                # What it would forget was compacted away.
                return
            group = ConsumerGroup(group_id)
            self._context.groups.put(group)
        members = len(group.members)
        group.replay(key, value)
        if isinstance(key, ConsumerGroupMemberMetadataKey) and len(group.members) < members:
            self.forget_timers(group_id, key.member_id)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            self._context.groups.remove(group_id)

    def forget_timers(self, group_id: str, member_id: str) -> None:
        """Nobody waits for this member any more."""
        self._context.timers.cancel(session_timer(group_id, member_id))
        self._context.timers.cancel(rebalance_timer(group_id, member_id))
        if self.migration is not None:
            self.migration.forget_timers(group_id, member_id)

    def loaded(self, now: Now) -> Outcome:
        """All of the log has been replayed: sessions begin anew."""
        self._patterns.loaded()
        topics = self._context.image().topics
        for group in self._groups():
            # The coordinator before this one may have lacked tombstones, and left partitions to members that are gone.
            is_whole = group.assigns_each_once(topics) and not group.strangers()
            group.must_assign_anew = not is_whole and group.assignment_epoch == group.epoch
            session_timeout_ms = self._session_timeout_ms(group.group_id)
            for member in group.members.values():
                self.heard(group.group_id, member.member_id, session_timeout_ms, now)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                    self._expect_revocation(group.group_id, member, now)
        return Outcome()

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        """Topics came, went, grew or moved. The groups look at it with their next heartbeat."""
        names = [topic.name for topic in delta.changed_topics.values() if _matters(topic)]
        names += [topic.name for topic in delta.deleted_topics.values()]
        for name in names:
            self._hashes.forget(name)
        if any(topic.before is None for topic in delta.changed_topics.values()):
            self._patterns.topics_created(delta.after.offset)
        if names:
            for group in self._groups():
                if any(group.is_subscribed_to(name) for name in names):
                    group.request_metadata_refresh()
        return Outcome()

    def give_up(self) -> list[Reply]:
        """The partition is led elsewhere: nobody waits here."""
        return []

    def _groups(self) -> list[ConsumerGroup]:
        return [group for group in self._context.groups if isinstance(group, ConsumerGroup)]


def _why_anew(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> str:
    """What a member did that asks for a new assignment."""
    if after.member_id not in group.members:
        return f"{after.member_id} joined"
    if after.topic_names != before.topic_names:
        return f"{after.member_id} subscribes to other topics"
    if group.must_assign_anew:
        return "its target assignment was not a whole one when this coordinator read it"
    return f"{after.member_id} subscribes to another pattern"


def _refuse_empty(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH."""
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a greater member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    # The answer with its new epoch may have been lost. It has to own nothing but what it was given.
    if epoch != member.previous_epoch or not _owns_at_most(request, member):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a smaller member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _owns_at_most(request: ConsumerGroupHeartbeatRequest, member: ConsumerMember) -> bool:
    if request.topic_partitions is None:
        return False
    return all(
        topic.topic_id in member.assigned and number in member.assigned[topic.topic_id]
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def _reported(topics: list[TopicPartitions] | None) -> Partitions | None:
    if topics is None:
        return None
    reported: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        reported[topic.topic_id] = reported.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return reported


def _matters(topic: TopicDelta) -> bool:
    """Whether an assignment could be different now: leaders and replicas in sync come and go all the time."""
    if topic.before is None:
        return True
    for number, partition in topic.changed_partitions.items():
        previous = topic.previous(number)
        if previous is None or previous.replicas != partition.replicas:
            return True
    return False
