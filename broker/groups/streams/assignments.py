"""Core: epochs and target assignments of streams groups (KIP-1071).

A change of members, topology or topics starts a new group epoch; a new group epoch leads to a new target assignment.
Small assignments are computed at once, in the heartbeat that needs them. Others are computed and written in turns of
the event loop; members keep the last one meanwhile, with the status ASSIGNMENT_DELAYED.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from barnabas.broker.groups.assignment_turns import AssignmentTurns, Computed
from barnabas.broker.groups.decision_notes import note_epoch, note_targets
from barnabas.broker.groups.group import GroupContext
from barnabas.broker.groups.group_configs import (
    streams_assignment_interval_ms,
    streams_initial_rebalance_delay_ms,
    streams_num_standby_replicas,
)
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.streams import records
from barnabas.broker.groups.streams.assignor import MemberSpec, assign_tasks
from barnabas.broker.groups.streams.configured_topology import ConfiguredTopology, Problem, Status
from barnabas.broker.groups.streams.member import StreamsMember
from barnabas.broker.groups.streams.preparation import Preparations
from barnabas.broker.groups.streams.streams_group import NO_TASKS, StreamsGroup
from barnabas.broker.groups.streams.tasks import TaskSet, number_of
from barnabas.runtime.at_once import Stepwise, at_once
from barnabas.runtime.decisions import Notes

ASSIGNOR_NAME = "sticky"
NUM_STANDBY_REPLICAS = "num.standby.replicas"
"""The assignor's only config."""

_DELAYED_INITIALLY = Problem(
    Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)
_DELAYED = Problem(Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
_IN_PROGRESS = Problem(Status.ASSIGNMENT_DELAYED, "Assignment delayed because it is being computed.")


@dataclass(frozen=True, slots=True)
class Target:
    """Target that a member is reconciled with."""

    epoch: int
    tasks: TaskSet
    delay: Problem | None = None
    """Reason why there is no target for the newest epoch yet."""


class Assignments:
    """Assignments of the groups of one partition of `__consumer_offsets`."""

    def __init__(self, context: GroupContext, preparations: Preparations) -> None:
        self._context = context
        self._preparations = preparations
        self._turns: AssignmentTurns[StreamsGroup, TaskSet] = AssignmentTurns("streams-assignment", context, self)

    # -- epochs

    def update_epoch(
        self, group: StreamsGroup, configured: ConfiguredTopology, cause: str, update: Update
    ) -> int:
        """The group's epoch: a new one if there is a `cause`, or if its topics or the assignor's configs have
        changed."""
        configs = self.configs(group.group_id)
        if not cause and configured.metadata_hash != group.metadata_hash:
            cause = "partitions or racks of its topics have changed"
        if not cause and configured.validated_epoch != group.validated_topology_epoch:
            cause = "its topics are complete" if configured.is_ready else _detail_of(configured)
        if not cause and configs != group.assignment_configs:
            shown = ", ".join(f"{key}={value}" for key, value in sorted(configs.items()))
            cause = f"the assignor's configs are now {shown}"
        if not cause:
            return group.epoch
        epoch = group.epoch + 1
        validated = configured.validated_epoch
        update.records.append(
            records.group_epoch(group.group_id, epoch, configured.metadata_hash, validated, configs)
        )
        note_epoch(update.notes, group, epoch, cause)
        self._context.events.streams_rebalances += 1
        return epoch

    def configs(self, group_id: str) -> dict[str, str]:
        return {NUM_STANDBY_REPLICAS: str(streams_num_standby_replicas(self._context, group_id))}

    # -- targets

    def delay_first(self, group: StreamsGroup, now: Now) -> None:
        """A group gets its first member: wait for others before the first assignment."""
        delay_ms = streams_initial_rebalance_delay_ms(self._context, group.group_id)
        key = _delay_timer(group.group_id)
        if delay_ms > 0 and self._context.timers.deadline_ms(key) is None:
            self._context.timers.schedule(key, now.monotonic_ms + delay_ms, partial(self._delay_ends, group.group_id))

    def forget(self, group_id: str) -> None:
        """The group is deleted."""
        self._context.timers.cancel(_delay_timer(group_id))
        self._turns.forget(group_id)

    def target(
        self,
        group: StreamsGroup,
        epoch: int,
        member: StreamsMember,
        configured: ConfiguredTopology,
        update: Update,
    ) -> Target:
        """Target of the member: a new one if the group has a new epoch and may be assigned now."""
        group_id = group.group_id
        if self._context.timers.deadline_ms(_delay_timer(group_id)) is not None:
            return Target(group.assignment_epoch, NO_TASKS, _DELAYED_INITIALLY)
        last = group.targets.get(member.member_id, NO_TASKS)
        if group.assignment_epoch >= epoch:
            return Target(group.assignment_epoch, last)
        if self._turns.are_under_way(group_id):
            return Target(group.assignment_epoch, last, _IN_PROGRESS)
        if not self._may_assign(group, update.now):
            return Target(group.assignment_epoch, last, _DELAYED)
        members = {**group.members, member.member_id: member}
        if self._turns.are_due(_size_of(configured, len(members), self._replicas(group_id))):
            # It begins after this heartbeat is written, or could not be.
            self._turns.begin(group_id, update.now)
            return Target(group.assignment_epoch, last, _IN_PROGRESS)
        targets = at_once(self._compute(group, members, configured))
        for member_id, tasks in targets.items():
            if group.targets.get(member_id) != tasks:
                update.records.append(records.target_assignment(group_id, member_id, tasks))
        update.records.append(records.target_epoch(group_id, epoch, update.now.wall_ms))
        note_targets(update.notes, group, epoch, ASSIGNOR_NAME, len(targets))
        return Target(epoch, targets[member.member_id])

    def _may_assign(self, group: StreamsGroup, now: Now) -> bool:
        interval_ms = streams_assignment_interval_ms(self._context, group.group_id)
        # A clock that was set back must not delay assignments for long.
        return group.assignment_timestamp_ms == 0 or not 0 <= now.wall_ms - group.assignment_timestamp_ms < interval_ms

    def _replicas(self, group_id: str) -> int:
        return streams_num_standby_replicas(self._context, group_id)

    def _compute(
        self, group: StreamsGroup, members: Mapping[str, StreamsMember], configured: ConfiguredTopology
    ) -> Stepwise[dict[str, TaskSet]]:
        """Targets of these members. The group may change meanwhile."""
        specs = {
            member_id: MemberSpec(member.process_id, group.targets.get(member_id, NO_TASKS))
            for member_id, member in members.items()
        }
        if not configured.is_ready:
            return _no_tasks(specs)
        return assign_tasks(specs, configured.subtopologies, self._replicas(group.group_id))

    # -- in turns

    def _delay_ends(self, group_id: str, now: Now) -> Outcome:
        """Timer: the members of a new group have had time to join."""
        self._turns.begin(group_id, now)
        return Outcome()

    # -- Assigned

    def find(self, group_id: str) -> StreamsGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, StreamsGroup) else None

    def compute(self, group: StreamsGroup) -> Stepwise[Computed[TaskSet] | None]:
        """Raises KafkaError STREAMS_INVALID_TOPOLOGY."""
        configured = yield from self._preparations.configured(group)
        if configured is None or configured.validated_epoch != group.validated_topology_epoch:
            # The next heartbeat begins a new epoch.
            return None
        epoch = group.epoch
        if not group.members or epoch <= group.assignment_epoch:
            return None
        targets = yield from self._compute(group, group.members, configured)
        changed = [it for it in targets.items() if group.targets.get(it[0]) != it[1]]
        return Computed(epoch, changed[::-1])

    def member_now(self, group: StreamsGroup, member_id: str, instance_id: str | None) -> str | None:
        return member_id if member_id in group.members else None

    def size_of(self, target: TaskSet) -> int:
        return number_of(target.active) + number_of(target.standby)

    def target_record(self, group_id: str, member_id: str, target: TaskSet) -> CoordinatorRecord:
        return records.target_assignment(group_id, member_id, target)

    def epoch_record(self, group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
        return records.target_epoch(group_id, epoch, wall_ms)

    def assigned(self, group: StreamsGroup, epoch: int, notes: Notes) -> None:
        note_targets(notes, group, epoch, ASSIGNOR_NAME, len(group.members))


def _delay_timer(group_id: str) -> Hashable:
    return ("streams-initial-delay", group_id)


def _size_of(configured: ConfiguredTopology, members: int, replicas: int) -> int:
    if not configured.is_ready:
        return members
    return members + sum(
        it.number_of_tasks * (1 + replicas * it.is_stateful) for it in configured.subtopologies.values()
    )


def _no_tasks(members: Mapping[str, object]) -> Stepwise[dict[str, TaskSet]]:
    yield
    return dict.fromkeys(members, NO_TASKS)


def _detail_of(configured: ConfiguredTopology) -> str:
    return "" if configured.problem is None else configured.problem.detail
