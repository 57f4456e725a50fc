"""Core: one member of a streams group (KIP-1071) as an immutable value, as recorded in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from barnabas.broker.groups.consumer_member import JOIN_EPOCH, UNKNOWN_EPOCH
from barnabas.broker.groups.state_transitions import Moves
from barnabas.broker.groups.streams.tasks import HeldTasks, tasks_of
from barnabas.protocol.messages.group_log import (
    StreamsGroupCurrentMemberAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)


class MemberState(IntEnum):
    """State on the way to the target assignment. The value is that of the record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It must stop tasks first."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that other members, or its own process, still have."""
    UNKNOWN = 127
    """A later version has written it."""


MEMBER_MOVES: Moves[MemberState] = {
    MemberState.STABLE: (MemberState.UNREVOKED_TASKS, MemberState.UNRELEASED_TASKS),
    MemberState.UNREVOKED_TASKS: (MemberState.STABLE, MemberState.UNRELEASED_TASKS),
    MemberState.UNRELEASED_TASKS: (MemberState.STABLE, MemberState.UNREVOKED_TASKS),
    MemberState.UNKNOWN: (MemberState.STABLE, MemberState.UNREVOKED_TASKS, MemberState.UNRELEASED_TASKS),
}


class Endpoint(NamedTuple):
    """Address at which a member answers interactive queries (application.server)."""

    host: str
    port: int


_NOTHING = HeldTasks()


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """All durable state of a member."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = 0
    """Also accepted, from a member that missed the answer with `epoch`."""
    state: MemberState = MemberState.STABLE
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """Members of one process share its state directory: it has each task at most once."""
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: HeldTasks = _NOTHING
    revoking: HeldTasks = _NOTHING

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        endpoint = value.user_endpoint
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags={tag.key: tag.value for tag in value.client_tags},
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        epoch = value.member_epoch
        known = value.state in MemberState.__members__.values()
        return replace(
            self,
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=HeldTasks(
                _with_epochs(value.active_tasks, epoch), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
            ),
            revoking=HeldTasks(
                _with_epochs(value.active_tasks_pending_revocation, epoch),
                tasks_of(value.standby_tasks_pending_revocation),
                tasks_of(value.warmup_tasks_pending_revocation),
            ),
        )

    def without_assignment(self) -> StreamsMember:
        """The member after a tombstone of its current assignment."""
        return replace(
            self, epoch=UNKNOWN_EPOCH, previous_epoch=UNKNOWN_EPOCH, assigned=_NOTHING, revoking=_NOTHING
        )

    def size_bytes(self) -> int:
        """Characters of what the member has sent about itself."""
        tags = sum(len(key) + len(value) for key, value in self.client_tags.items())
        host = "" if self.endpoint is None else self.endpoint.host
        texts = (self.member_id, self.rack_id or "", self.client_id, self.client_host, self.process_id, host)
        return tags + sum(map(len, texts))


def _with_epochs(
    listed: Iterable[StreamsGroupCurrentMemberAssignmentTaskIds], member_epoch: int
) -> dict[str, dict[int, int]]:
    """Tasks without their epochs (records before 4.2) count as assigned in the member's epoch."""
    found: dict[str, dict[int, int]] = {}
    for it in listed:
        epochs = it.assignment_epochs
        if epochs is None or len(epochs) != len(it.partitions):
            epochs = [member_epoch] * len(it.partitions)
        if it.partitions:
            found.setdefault(it.subtopology_id, {}).update(zip(it.partitions, epochs, strict=True))
    return found
