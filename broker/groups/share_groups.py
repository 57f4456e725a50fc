"""Core: share groups (KIP-932): membership by heartbeats, assignment by the coordinator, states of share partitions.

Decisions are written and come back by `replay`; nothing else changes durable state. A partition is assigned once its
state at the share coordinator is initialized, which a port does after the heartbeat's records are replicated.

Knows no other kind of group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, Reply
from barnabas.broker.groups import share_records as records
from barnabas.broker.groups.consumer_assignments import REFRESH_INTERVAL_MS
from barnabas.broker.groups.consumer_member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.broker.groups.decision_notes import note_epoch
from barnabas.broker.groups.epoch_group import RefreshDeadline
from barnabas.broker.groups.group import Client, GroupContext
from barnabas.broker.groups.group_configs import (
    share_heartbeat_interval_ms,
    share_session_timeout_ms,
)
from barnabas.broker.groups.group_memory import MEMBER_BYTES, size_of_names
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.groups_of_type import GroupsOfType
from barnabas.broker.groups.sessions import Sessions
from barnabas.broker.groups.share_assignments import ShareAssignments
from barnabas.broker.groups.share_group import ShareGroup
from barnabas.broker.groups.share_member import ShareMember
from barnabas.broker.groups.share_topics import ShareTopics, States, TopicStates
from barnabas.broker.groups.target_assignment import TargetAssignment, topic_ids
from barnabas.broker.groups.topic_hashes import TopicHashes, changed_topics
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import ShareGroupMemberMetadataKey, ShareGroupMetadataKey
from barnabas.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


class ShareGroups(GroupsOfType[ShareGroup]):
    """The share groups of one partition of `__consumer_offsets`."""

    group_class = ShareGroup
    metadata_key = ShareGroupMetadataKey
    member_key = ShareGroupMemberMetadataKey

    def __init__(self, context: GroupContext) -> None:
        super().__init__(context)
        self._sessions = Sessions("share", context.timers, self.member, self.fence)
        self._hashes = TopicHashes()
        self._assignments = ShareAssignments(context)
        self._under_way: dict[str, dict[bytes, frozenset[int]]] = {}
        """Partitions whose states are being initialized by this coordinator, by group and topic id."""

    # -- ShareGroupHeartbeat

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client: Client, reply: Reply, now: Now) -> Outcome:
        """Join, stay or leave. Errors are in the answer, with a message."""
        update = Update(now)
        try:
            _check_request(request)
            if request.member_epoch == LEAVE_EPOCH:
                response = self._leave(request, update)
                update.answers.append((reply, response))
                return update.outcome()
            return self._join_or_stay(request, client, update, reply)
        except KafkaError as error:
            response = ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            return Outcome(answers=[(reply, response)])

    def _join_or_stay(
        self, request: ShareGroupHeartbeatRequest, client: Client, update: Update, reply: Reply
    ) -> Outcome:
        """Raises KafkaError."""
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group_to_join(request.group_id) if joins else self.group(request.group_id)
        group_id = group.group_id
        self._check_room(group, request.member_id, self._context.settings().group_share_max_size)
        before = group.members.get(request.member_id) if joins else group.member(request.member_id)
        if before is None:
            before = ShareMember(request.member_id)
        _check_epoch(before, request.member_epoch)
        after = _with_request(before, request, client)
        growth = size_of_names(after.topic_names) - size_of_names(before.topic_names)
        self._context.groups.memory.check_room(growth + MEMBER_BYTES * (after.member_id not in group.members))
        epoch = self._update_epoch(group, before, after, update)
        target = self._assignments.target(group, epoch, after, update)
        member = self._reconcile(group, after, target, epoch != group.epoch, update)
        self._renew(group_id, member.member_id, update.now)
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=share_heartbeat_interval_ms(self._context, group_id),
        )
        if joins or request.subscribed_topic_names is not None or before.assigned != member.assigned:
            response.assignment = _assignment_of(member)
        update.answers.append((reply, response))
        return self._initialize_missing(group, epoch, group.topics_with(after), update)

    # -- lookup

    def _group_to_join(self, group_id: str) -> ShareGroup:
        """The group, or a new one that is not written yet. Raises KafkaError GROUP_ID_NOT_FOUND."""
        return ShareGroup(group_id) if self._context.groups.get(group_id) is None else self.group(group_id)

    # -- epochs and assignments

    def _update_epoch(self, group: ShareGroup, before: ShareMember, after: ShareMember, update: Update) -> int:
        """The group's epoch: a new one if subscriptions or topics have changed, or partitions can be assigned that were
        not before."""
        cause = ""
        if after != before:
            update.records.append(records.member_metadata(group.group_id, after))
            if after.member_id not in group.members:
                cause = f"{after.member_id} joined"
            elif after.topic_names != before.topic_names:
                cause = f"{after.member_id} changed its subscribed topics"
        if not cause and group.assignment_epoch >= group.epoch and group.has_unassigned_partitions():
            cause = "the states of further partitions are initialized"
        if not cause and not group.metadata_has_expired(update.now.monotonic_ms):
            return group.epoch
        metadata_hash = self._hashes.of_group(group.topics_with(after), self._context.image())
        epoch = group.epoch
        if cause or metadata_hash != group.metadata_hash:
            epoch += 1
            update.records.append(records.group_epoch(group.group_id, epoch, metadata_hash))
            cause = cause or "partitions or racks of its topics have changed"
            note_epoch(update.notes, group, epoch, cause)
        group.refresh_deadline = RefreshDeadline(update.now.monotonic_ms + REFRESH_INTERVAL_MS, epoch)
        return epoch

    def _reconcile(
        self, group: ShareGroup, member: ShareMember, target: TargetAssignment, changed: bool, update: Update
    ) -> ShareMember:
        """Move the member to its target, at once: nobody has to release a partition first."""
        if not changed and member.epoch == target.epoch:
            return member
        subscribed = topic_ids(member.topic_names, self._context.image().topics)
        assigned = {topic_id: indexes for topic_id, indexes in target.partitions.items() if topic_id in subscribed}
        after = replace(member, assigned=assigned)
        if member.epoch != target.epoch:
            after = replace(after, epoch=target.epoch, previous_epoch=member.epoch)
        if after != member:
            update.records.append(records.current_assignment(group.group_id, after))
        return after

    # -- states of share partitions

    def _initialize_missing(self, group: ShareGroup, epoch: int, names: Iterable[str], update: Update) -> Outcome:
        """Begin to initialize the states of partitions that have none."""
        under_way = self._under_way.get(group.group_id, {})
        missing = group.missing_states(names, self._context.image().topics, under_way)
        if not missing:
            return update.outcome()
        update.records.append(records.share_topics(group.group_id, group.topics.beginning(missing)))
        outcome = update.outcome()
        outcome.committed = partial(self._context.share_states.initialize, group.group_id, epoch, missing)

        def failed(error: KafkaError) -> Outcome:
            self._not_under_way(group.group_id, missing)
            for reply, _ in outcome.answers:
                reply.refuse(error.code)
            return Outcome()

        outcome.failed = failed
        # Another heartbeat may come before this one is replicated, and must not begin again in a later epoch.
        under_way = self._under_way.setdefault(group.group_id, under_way)
        for topic_id, it in missing.items():
            under_way[topic_id] = under_way.get(topic_id, frozenset()) | it.partitions
        return outcome

    def _not_under_way(self, group_id: str, states: States) -> None:
        """The initialization of these states has ended, or did not begin."""
        under_way = self._under_way.get(group_id, {})
        for topic_id, it in states.items():
            under_way[topic_id] = under_way.get(topic_id, frozenset()) - it.partitions
        if not any(under_way.values()):
            self._under_way.pop(group_id, None)

    def initialization_ended(self, group_id: str, done: States, failed: States, now: Now) -> Outcome:
        """The port has initialized the states `done`, and could not initialize `failed`: the next heartbeat tries
        again."""
        for states in (done, failed):
            self._not_under_way(group_id, states)
        group = self.find(group_id)
        if group is None:
            return Outcome()
        topics = group.topics.initialized_now(_known(group.topics, done)).given_up(failed)
        return Outcome([records.share_topics(group_id, topics)])

    def end_alteration(self, group_id: str, done: States, failed: States, reply: Reply, now: Now) -> Outcome:
        """Last step of AlterShareGroupOffsets. Answers with None."""
        outcome = self.initialization_ended(group_id, done, failed, now)
        outcome.answers.append((reply, None))
        return outcome

    def begin_deletion(self, group_id: str, reply: Reply, now: Now) -> Outcome:
        """First step of the deletion of an empty group; answers with the states that are to be deleted, by topic id.
        Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self.group(group_id)
        group.check_delete()
        return self._begin_deletion(group, [*group.topics.initialized, *group.topics.initializing], reply)

    def begin_topic_deletion(self, group_id: str, topics: Iterable[bytes], reply: Reply, now: Now) -> Outcome:
        """First step of DeleteShareGroupOffsets. As `begin_deletion`, for some topics."""
        group = self.group(group_id)
        group.check_delete()
        return self._begin_deletion(group, topics, reply)

    def _begin_deletion(self, group: ShareGroup, topic_ids: Iterable[bytes], reply: Reply) -> Outcome:
        image = self._context.image().topics.by_id
        after = group.topics.deleting_these(topic_ids)
        states: dict[bytes, frozenset[int]] = {
            topic_id: frozenset(image[topic_id].partitions) for topic_id in after.deleting if topic_id in image
        }
        written = [] if after == group.topics else [records.share_topics(group.group_id, after)]
        return Outcome(written, [(reply, states)])

    def end_topic_deletion(self, group_id: str, topic_ids: Iterable[bytes], reply: Reply, now: Now) -> Outcome:
        """Last step of DeleteShareGroupOffsets: the states of these topics are deleted. Answers with None."""
        group = self.group(group_id)
        return Outcome([records.share_topics(group_id, group.topics.without(topic_ids))], [(reply, None)])

    def begin_alteration(self, group_id: str, states: States, reply: Reply, now: Now) -> Outcome:
        """First step of AlterShareGroupOffsets; creates the group if there is none. Answers with the epoch of the new
        states. Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._group_to_join(group_id)
        group.check_delete()
        epoch = group.epoch + 1
        metadata_hash = self._hashes.of_group((), self._context.image())
        written = [records.group_epoch(group_id, epoch, metadata_hash)]
        written.append(records.share_topics(group_id, group.topics.beginning(states)))
        return Outcome(written, [(reply, epoch)])

    # -- leaving

    def _leave(self, request: ShareGroupHeartbeatRequest, update: Update) -> ShareGroupHeartbeatResponse:
        """Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
        group = self.group(request.group_id)
        self._remove(group, group.member(request.member_id), update, f"{request.member_id} left")
        return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)

    def _remove(self, group: ShareGroup, member: ShareMember, update: Update, cause: str) -> None:
        update.records += records.member_tombstones(group.group_id, member.member_id)
        metadata_hash = self._hashes.of_group(group.topics_without(member), self._context.image())
        update.records.append(records.group_epoch(group.group_id, group.epoch + 1, metadata_hash))
        left = len(group.members) - 1
        note_epoch(update.notes, group, group.epoch + 1, f"{cause}; {left or 'no'} members remain")

    def _renew(self, group_id: str, member_id: str, now: Now) -> None:
        self._sessions.renew(group_id, member_id, share_session_timeout_ms(self._context, group_id), now)

    # -- the machine

    def _member_removed(self, group_id: str, member_id: str) -> None:
        self._sessions.forget(group_id, member_id)

    def _group_removed(self, group_id: str) -> None:
        self._assignments.forget(group_id)

    def loaded(self, now: Now) -> Outcome:
        """The whole log has been replayed: start the sessions."""
        for group in self._groups():
            for member_id in group.members:
                self._renew(group.group_id, member_id, now)
        return Outcome()

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        """Groups check changed topics at the next heartbeat, and forget deleted ones."""
        names = changed_topics(delta)
        for name in names:
            self._hashes.forget(name)
        written: list[CoordinatorRecord] = []
        for group in self._groups() if names else ():
            if any(group.is_subscribed_to(name) for name in names):
                group.request_metadata_refresh()
            after = group.topics.without(delta.deleted_topics)
            if after != group.topics:
                written.append(records.share_topics(group.group_id, after))
        return Outcome(written)


def _check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raises KafkaError INVALID_REQUEST."""
    message = None
    if not request.member_id.strip():
        message = "MemberId can't be empty."
    elif not request.group_id.strip():
        message = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        message = "RackId can't be empty."
    elif request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        message = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE_EPOCH:
        message = "MemberEpoch is invalid."
    if message is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator"
            f" ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    if epoch != member.previous_epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator"
            f" ({member.epoch}), and it does not match the previous member epoch ({member.previous_epoch})."
            " The member must abandon all its partitions and rejoin.",
        )


def _with_request(member: ShareMember, request: ShareGroupHeartbeatRequest, client: Client) -> ShareMember:
    """The member with the request's changes."""
    names = request.subscribed_topic_names
    return replace(
        member,
        client_id=client.client_id,
        client_host=client.host,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topic_names=member.topic_names if names is None else frozenset(names),
    )


def _assignment_of(member: ShareMember) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in member.assigned.items()
        ]
    )


def _known(topics: ShareTopics, states: States) -> dict[bytes, TopicStates]:
    """Those states whose initialization is still wanted: their topic was not deleted meanwhile."""
    return {topic_id: it for topic_id, it in states.items() if topic_id in topics.initializing}
