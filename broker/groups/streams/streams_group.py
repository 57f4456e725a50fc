"""Core: one streams group (KIP-1071): its members, epochs, topology, and target assignment.

All of it follows from the log: only `replay` changes it, except for soft state such as the configured topology.
Decisions are made in `streams_groups.py` and `assignments.py`.

Invariants: assignment_epoch <= epoch; a task is active at, or being stopped by, at most one member.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now
from barnabas.broker.groups.epoch_group import EpochGroup
from barnabas.broker.groups.group import Commit, GroupType
from barnabas.broker.groups.group_keys import StreamsGroupKey
from barnabas.broker.groups.group_memory import MEMBER_BYTES
from barnabas.broker.groups.state_transitions import Moves
from barnabas.broker.groups.streams import records
from barnabas.broker.groups.streams.configured_topology import ConfiguredTopology
from barnabas.broker.groups.streams.endpoints import EndpointPartitions
from barnabas.broker.groups.streams.member import MemberState, StreamsMember
from barnabas.broker.groups.streams.task_owners import TaskOwners
from barnabas.broker.groups.streams.tasks import TaskSet, tasks_of
from barnabas.broker.groups.streams.topology import Topology, topology_of
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.group_log import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from barnabas.protocol.schema import Message

NO_TASKS = TaskSet()

_COMMIT_WITH_EPOCHS = 9
"""First OffsetCommit version whose members understand STALE_MEMBER_EPOCH."""


class StreamsGroupState(Enum):
    """The value is the name in ListGroups and StreamsGroupDescribe."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of the topology are missing, or do not have the right number of partitions."""
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch."""
    RECONCILING = "Reconciling"
    """At least one member has not reached its target yet."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted."""


STREAMS_GROUP_MOVES: Moves[StreamsGroupState] = {
    StreamsGroupState.EMPTY: (
        StreamsGroupState.NOT_READY,
        StreamsGroupState.ASSIGNING,
        StreamsGroupState.RECONCILING,
        StreamsGroupState.STABLE,
        StreamsGroupState.DEAD,
    ),
    StreamsGroupState.NOT_READY: (
        StreamsGroupState.ASSIGNING,
        StreamsGroupState.RECONCILING,
        StreamsGroupState.STABLE,
        StreamsGroupState.EMPTY,
    ),
    StreamsGroupState.ASSIGNING: (
        StreamsGroupState.RECONCILING,
        StreamsGroupState.STABLE,
        StreamsGroupState.NOT_READY,
        StreamsGroupState.EMPTY,
    ),
    StreamsGroupState.RECONCILING: (
        StreamsGroupState.STABLE,
        StreamsGroupState.ASSIGNING,
        StreamsGroupState.NOT_READY,
        StreamsGroupState.EMPTY,
    ),
    StreamsGroupState.STABLE: (
        StreamsGroupState.ASSIGNING,
        StreamsGroupState.RECONCILING,
        StreamsGroupState.NOT_READY,
        StreamsGroupState.EMPTY,
    ),
    StreamsGroupState.DEAD: (),
}


class StreamsGroup(EpochGroup[StreamsMember, TaskSet]):
    """Implements `broker.groups.group.Group`."""

    type = GroupType.STREAMS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = -1
        """Epoch of the topology whose topics are as they must be; -1 if they are not."""
        self.assignment_configs: dict[str, str] = {}
        """Configs of the assignor when the epoch began."""
        self.owners = TaskOwners()
        self.topology: Topology | None = None
        self.metadata_bytes = 0
        """Size of what all members have sent about themselves."""
        self._reconciled: Counter[int] = Counter()
        """Members in the state STABLE, by epoch."""
        self.configured: ConfiguredTopology | None = None
        """Soft state: the topology beside the topics that exist."""
        self.topic_changes = 0
        """Soft state: changes of topics of the topology since this coordinator loaded the group."""
        self.configured_after = 0
        """Soft state: value of `topic_changes` for which `configured` holds."""
        self.shutdown_requested_by: str | None = None
        """Soft state: the member that wants all processes of the application to stop."""
        self.endpoints = EndpointPartitions()
        """Soft state."""

    # -- the Group protocol

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if self._reconciled[self.assignment_epoch] == len(self.members):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def state_name(self) -> str:
        return self.state.value

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.reading

    def tombstones(self) -> list[CoordinatorRecord]:
        of_members = [it for member_id in self.members for it in records.member_tombstones(self.group_id, member_id)]
        return [*of_members, *records.group_tombstones(self.group_id)]

    # -- offsets

    def check_commit(self, commit: Commit, now: Now) -> None:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH.

        Accepts an older epoch if the member had tasks in it; `check_commit_of` then checks each partition.
        """
        if self.commits_from_outside(commit):
            return
        member = self.member(commit.member_id)
        if not commit.transactional and commit.version < _COMMIT_WITH_EPOCHS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the streams group protocol",
            )
        if commit.generation_or_epoch > member.epoch:
            raise _stale(
                f"Received member epoch {commit.generation_or_epoch} is newer than current member epoch {member.epoch}."
            )

    def check_commit_of(self, commit: Commit, topic: str, topic_id: bytes, partition: int) -> None:
        """Check that one offset may be committed with the member epoch of the commit. An older epoch is valid as long
        as the member has had the task since then.

        Raises KafkaError STALE_MEMBER_EPOCH. To be called after `check_commit`.
        """
        if self.commits_from_outside(commit):
            return
        member = self.member(commit.member_id)
        if commit.generation_or_epoch == member.epoch:
            return
        subtopology_id = None if self.topology is None else self.topology.reading.get(topic)
        if subtopology_id is None:
            raise _stale(f"Topic {topic} is not in the topology.")
        since = member.assigned.active.get(subtopology_id, {}).get(partition)
        if since is None:
            since = member.revoking.active.get(subtopology_id, {}).get(partition)
        if since is None:
            raise _stale(f"Task {subtopology_id}-{partition} is not assigned or pending revocation for member.")
        if commit.generation_or_epoch < since:
            raise _stale(
                f"Received member epoch {commit.generation_or_epoch} is older than assignment epoch {since} for task"
                f" {subtopology_id}-{partition}."
            )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(
                f"The received member epoch {member_epoch} does not match the expected member epoch {member.epoch}."
            )

    # -- members

    def requires(self, topic: str) -> bool:
        """True if tasks need the topic. A repartition sink is also a source, except in an invalid topology."""
        return self.topology is not None and topic in self.topology.required_names

    # -- replay

    def replay(self, key: StreamsGroupKey, value: Message | None) -> None:
        """Apply a record of this group. Tombstones of unknown entries are ignored."""
        match key:
            case StreamsGroupMetadataKey():
                if isinstance(value, StreamsGroupMetadataValue):
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
                    self.validated_topology_epoch = value.validated_topology_epoch
                    self.assignment_configs = {it.key: it.value for it in value.last_assignment_configs or ()}
            case StreamsGroupTopologyKey():
                self.held.change(-_size_of(self.topology))
                self.topology = topology_of(value) if isinstance(value, StreamsGroupTopologyValue) else None
                self.held.change(_size_of(self.topology))
                self.configured = None
            case StreamsGroupMemberMetadataKey(member_id=member_id):
                if isinstance(value, StreamsGroupMemberMetadataValue):
                    self._put(self._known(member_id).with_metadata(value))
                else:
                    self._remove(member_id)
            case StreamsGroupTargetAssignmentMetadataKey():
                self.replay_target_epoch(value)
            case StreamsGroupTargetAssignmentMemberKey(member_id=member_id):
                if isinstance(value, StreamsGroupTargetAssignmentMemberValue):
                    self.targets[member_id] = TaskSet(
                        tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
                    )
                else:
                    self.targets.pop(member_id, None)
            case StreamsGroupCurrentMemberAssignmentKey(member_id=member_id):
                if isinstance(value, StreamsGroupCurrentMemberAssignmentValue):
                    self._put(self._known(member_id).with_assignment(value))
                elif member_id in self.members:
                    self._put(self.members[member_id].without_assignment())

    def _known(self, member_id: str) -> StreamsMember:
        return self.members.get(member_id) or StreamsMember(member_id)

    def _put(self, member: StreamsMember) -> None:
        self._take_out(member.member_id)
        self.members[member.member_id] = member
        self.owners.own(member.assigned, member.process_id)
        self.owners.own(member.revoking, member.process_id)
        self.metadata_bytes += member.size_bytes()
        self.held.change(MEMBER_BYTES + member.size_bytes())
        if member.state is MemberState.STABLE:
            self._reconciled[member.epoch] += 1

    def _remove(self, member_id: str) -> None:
        self._take_out(member_id)
        self.members.pop(member_id, None)
        if not self.members:
            self.shutdown_requested_by = None

    def _take_out(self, member_id: str) -> None:
        """Take a member out of what is counted."""
        self.endpoints.forget(member_id)
        member = self.members.get(member_id)
        if member is None:
            return
        self.owners.release(member.assigned, member.process_id)
        self.owners.release(member.revoking, member.process_id)
        self.metadata_bytes -= member.size_bytes()
        self.held.change(-MEMBER_BYTES - member.size_bytes())
        if member.state is MemberState.STABLE:
            self._reconciled[member.epoch] -= 1
            if not self._reconciled[member.epoch]:
                del self._reconciled[member.epoch]


def _size_of(topology: Topology | None) -> int:
    return 0 if topology is None else topology.size_bytes


def _stale(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, message)
