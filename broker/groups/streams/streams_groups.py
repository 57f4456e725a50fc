"""Core: streams groups (KIP-1071). A member of a Kafka Streams application sends its topology; the coordinator makes
tasks of it and assigns them.

Decisions are written and come back by `replay`; nothing else changes durable state. This file decides membership;
`assignments` computes epochs and targets, `preparation` does what may take long before a heartbeat is decided.

Knows no other kind of group.
"""

from __future__ import annotations

from barnabas.broker.coordinator.outcome import Now, Outcome, Reply
from barnabas.broker.groups.consumer_member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.broker.groups.decision_notes import note_epoch
from barnabas.broker.groups.group import Client, GroupContext, GroupType
from barnabas.broker.groups.group_configs import streams_heartbeat_interval_ms, streams_session_timeout_ms
from barnabas.broker.groups.group_memory import MEMBER_BYTES, GroupMemory
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.groups_of_type import GroupsOfType
from barnabas.broker.groups.limits import MOST_GROUP_BYTES
from barnabas.broker.groups.sessions import Sessions
from barnabas.broker.groups.streams import records
from barnabas.broker.groups.streams.assignments import Assignments, Target
from barnabas.broker.groups.streams.configured_topology import ConfiguredTopology, Problem, Status
from barnabas.broker.groups.streams.description import StreamsDescription, describe
from barnabas.broker.groups.streams.heartbeat import (
    HeartbeatResult,
    add_assignment,
    check_epoch,
    check_tasks,
    is_leaving,
    reported_tasks,
    with_request,
)
from barnabas.broker.groups.streams.member import MemberState, StreamsMember
from barnabas.broker.groups.streams.preparation import Preparations, Prepared
from barnabas.broker.groups.streams.reconciliation import Reconciliation
from barnabas.broker.groups.streams.streams_group import StreamsGroup
from barnabas.broker.groups.streams.tasks import TaskSet
from barnabas.broker.groups.streams.topology import Topology
from barnabas.broker.groups.topic_hashes import changed_topics
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import StreamsGroupMemberMetadataKey, StreamsGroupMetadataKey
from barnabas.protocol.messages.streams_group_heartbeat import (
    Status as StatusEntry,
)
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


class StreamsGroups(GroupsOfType[StreamsGroup]):
    """The streams groups of one partition of `__consumer_offsets`."""

    group_class = StreamsGroup
    metadata_key = StreamsGroupMetadataKey
    member_key = StreamsGroupMemberMetadataKey
    name_if_missing = "Streams group"

    def __init__(self, context: GroupContext) -> None:
        super().__init__(context)
        self.preparations = Preparations(context)
        self._assignments = Assignments(context, self.preparations)
        self._sessions = Sessions("streams", context.timers, self.member, self.fence)

    def describe(self, group_id: str) -> StreamsDescription:
        """StreamsGroupDescribe entry. Raises KafkaError GROUP_ID_NOT_FOUND."""
        return describe(self.group(group_id))

    # -- StreamsGroupHeartbeat

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, prepared: Prepared, client: Client, reply: Reply, now: Now
    ) -> Outcome:
        """Join, stay or leave; answers with a `HeartbeatResult`. `prepared` must be of the same step of the event loop.
        Errors are in the answer, with a message."""
        update = Update(now)
        try:
            if is_leaving(request):
                result = self._leave(request, update)
            else:
                result = self._join_or_stay(request, prepared, client, update)
        except KafkaError as error:
            return Outcome(answers=[(reply, refusal(error))])
        outcome = update.outcome()
        outcome.answers.append((reply, result))
        return outcome

    def _join_or_stay(
        self, request: StreamsGroupHeartbeatRequest, prepared: Prepared, client: Client, update: Update
    ) -> HeartbeatResult:
        """Raises KafkaError."""
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group_to_join(request, update) if joins else self.group(request.group_id)
        before = group.members.get(request.member_id) if joins else group.member(request.member_id)
        reported = reported_tasks(request)
        if before is None:
            before = StreamsMember(request.member_id)
        check_epoch(before, request.member_epoch, reported)
        after = with_request(before, request, client)
        _check_memory(group, before, after, prepared.sent, self._context.groups.memory)
        statuses: list[Problem] = []
        configured = _configured(group, prepared, after, statuses)
        if configured.is_ready:
            check_tasks(reported, configured.subtopologies)
        cause = self._update_member(group, before, after, prepared, update)
        epoch = self._assignments.update_epoch(group, configured, cause, update)
        if not group.members:
            self._assignments.delay_first(group, update.now)
        target = self._assignments.target(group, epoch, after, configured, update)
        member = self._reconcile(group, after, target, reported, update)
        timeout_ms = streams_session_timeout_ms(self._context, group.group_id)
        self._sessions.renew(group.group_id, member.member_id, timeout_ms, update.now)
        if request.shutdown_application and group.shutdown_requested_by is None:
            group.shutdown_requested_by = member.member_id
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=streams_heartbeat_interval_ms(self._context, group.group_id),
        )
        if joins or member.assigned != before.assigned:
            add_assignment(response, member)
            group.endpoints.changed(member)
        elif reported is not None and reported != member.assigned.without_epochs():
            # The answer with the assignment may have been lost. (Kafka 4.3 does not repeat it.)
            add_assignment(response, member)
        self._add_endpoints(group, request.endpoint_information_epoch, member, configured, response)
        statuses += [it for it in (target.delay, configured.problem, _shutdown(group)) if it is not None]
        response.status = [StatusEntry(status_code=it.status, status_detail=it.detail) for it in statuses]
        return HeartbeatResult(response, configured.missing)

    def _update_member(
        self, group: StreamsGroup, before: StreamsMember, after: StreamsMember, prepared: Prepared, update: Update
    ) -> str:
        """Write the member and the topology if they are new. Returns the reason for a new epoch, or nothing."""
        cause = ""
        if after != before:
            update.records.append(records.member_metadata(group.group_id, after))
            joined = after.member_id not in group.members
            cause = f"{after.member_id} joined" if joined else f"{after.member_id} has changed"
        if group.topology is None:
            assert prepared.sent is not None
            update.records.append(records.topology(group.group_id, prepared.sent.value))
            cause = cause or f"{after.member_id} has sent the topology"
        return cause

    def _reconcile(
        self, group: StreamsGroup, member: StreamsMember, target: Target, reported: TaskSet | None, update: Update
    ) -> StreamsMember:
        """Compute and write the member's next step. Raises KafkaError FENCED_MEMBER_EPOCH."""
        if member.is_reconciled_to(target.epoch):
            return member
        after = Reconciliation(target.epoch, target.tasks, reported, group.owners).next_step(member)
        if after == member:
            return member
        update.records.append(records.current_assignment(group.group_id, after))
        if after.state is MemberState.UNREVOKED_TASKS:
            self._sessions.expect_revocation(group.group_id, after, update.now)
        else:
            self._sessions.revoked(group.group_id, after.member_id)
        return after

    def _add_endpoints(
        self,
        group: StreamsGroup,
        known_epoch: int,
        member: StreamsMember,
        configured: ConfiguredTopology,
        response: StreamsGroupHeartbeatResponse,
    ) -> None:
        """Partitions behind the endpoints, if the member does not know them yet."""
        if self._context.groups.get(group.group_id) is not group:
            # A new group begins with epoch 0 once it is written.
            return
        response.endpoint_information_epoch = group.endpoints.epoch
        if group.endpoints.epoch == known_epoch:
            return
        members = [*(it for it in group.members.values() if it.member_id != member.member_id), member]
        response.partitions_by_user_endpoint = group.endpoints.entries(
            members, configured.subtopologies, self._context.image().topics
        )
        if response.partitions_by_user_endpoint is None:
            response.endpoint_information_epoch = known_epoch

    # -- lookup

    def _group_to_join(self, request: StreamsGroupHeartbeatRequest, update: Update) -> StreamsGroup:
        """The group, or a new one that is not written yet. Raises KafkaError: GROUP_ID_NOT_FOUND,
        GROUP_MAX_SIZE_REACHED."""
        found = self._context.groups.get(request.group_id)
        if found is None:
            return StreamsGroup(request.group_id)
        if found.type is GroupType.CLASSIC and found.is_empty():
            update.records += found.tombstones()
            return StreamsGroup(request.group_id)
        group = self.group(request.group_id)
        self._check_room(group, request.member_id, self._context.settings().group_streams_max_size)
        return group

    # -- leaving

    def _leave(self, request: StreamsGroupHeartbeatRequest, update: Update) -> HeartbeatResult:
        """Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
        group = self.group(request.group_id)
        member = group.member(request.member_id)
        if request.shutdown_application and group.shutdown_requested_by is None:
            group.shutdown_requested_by = member.member_id
        self._remove(group, member, update, f"{member.member_id} left")
        return HeartbeatResult(
            StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH)
        )

    def _remove(self, group: StreamsGroup, member: StreamsMember, update: Update, cause: str) -> None:
        update.records += records.member_tombstones(group.group_id, member.member_id)
        epoch, configs = group.epoch + 1, group.assignment_configs
        update.records.append(
            records.group_epoch(group.group_id, epoch, group.metadata_hash, group.validated_topology_epoch, configs)
        )
        left = len(group.members) - 1
        note_epoch(update.notes, group, epoch, f"{cause}; {left or 'no'} members remain")

    # -- the machine

    def _member_removed(self, group_id: str, member_id: str) -> None:
        self._sessions.forget(group_id, member_id)

    def _group_removed(self, group_id: str) -> None:
        self._assignments.forget(group_id)

    def loaded(self, now: Now) -> Outcome:
        """The whole log has been replayed: start the sessions."""
        for group in self._groups():
            timeout_ms = streams_session_timeout_ms(self._context, group.group_id)
            for member in group.members.values():
                self._sessions.renew(group.group_id, member.member_id, timeout_ms, now)
                if member.state is MemberState.UNREVOKED_TASKS:
                    self._sessions.expect_revocation(group.group_id, member, now)
        return Outcome()

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        """Topics were created, deleted, extended or moved. Groups check their topics at the next heartbeat."""
        names = changed_topics(delta)
        for name in names:
            self.preparations.topic_changed(name)
        for group in self._groups() if names else ():
            group.topic_changes += any(group.requires(name) for name in names)
        return Outcome()


def refusal(error: KafkaError) -> HeartbeatResult:
    return HeartbeatResult(StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message))


def _configured(
    group: StreamsGroup, prepared: Prepared, member: StreamsMember, statuses: list[Problem]
) -> ConfiguredTopology:
    """The group's topology beside its topics. Raises KafkaError INVALID_REQUEST if the member has another topology."""
    topology, sent = group.topology, prepared.sent
    if topology is not None and member.topology_epoch < topology.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
            f" {topology.epoch}."
        )
        statuses.append(Problem(Status.STALE_TOPOLOGY, detail))
    elif topology is not None and sent is not None and not prepared.is_same:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    if prepared.configured is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Group {group.group_id} has no topology; the member must rejoin.")
    return prepared.configured


def _check_memory(
    group: StreamsGroup, before: StreamsMember, after: StreamsMember, sent: Topology | None, memory: GroupMemory
) -> None:
    """Raises KafkaError GROUP_MAX_SIZE_REACHED."""
    if after is before:
        return
    is_known = before.member_id in group.members
    growth = after.size_bytes() - (before.size_bytes() if is_known else 0)
    if group.metadata_bytes + growth > MOST_GROUP_BYTES:
        message = f"The members of a streams group may describe themselves with at most {MOST_GROUP_BYTES} characters."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    if group.topology is None and sent is not None:
        growth += sent.size_bytes
    memory.check_room(growth + (0 if is_known else MEMBER_BYTES))


def _shutdown(group: StreamsGroup) -> Problem | None:
    if group.shutdown_requested_by is None:
        return None
    detail = (
        f"Streams group member {group.shutdown_requested_by} encountered a fatal error and requested a shutdown for the"
        " entire application."
    )
    return Problem(Status.SHUTDOWN_APPLICATION, detail)
