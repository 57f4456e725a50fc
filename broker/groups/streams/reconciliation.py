"""Core: one step of a member of a streams group towards its target assignment (KIP-1071).

A member first stops tasks, then advances to the epoch of the target assignment and takes whatever is free. An active
task is free once no member has it; besides, a process must not have a task twice, in whatever role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from barnabas.broker.groups.streams.member import MemberState, StreamsMember
from barnabas.broker.groups.streams.task_owners import TaskOwners
from barnabas.broker.groups.streams.tasks import ActiveTasks, HeldTasks, Tasks, TaskSet
from barnabas.protocol.errors import ErrorCode, KafkaError

_NONE: frozenset[int] = frozenset()
_NO_EPOCHS: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Input of one member's next step."""

    assignment_epoch: int
    """Epoch of the target assignment."""
    target: TaskSet
    reported: TaskSet | None
    """Tasks that the member reports to have; None if it reports nothing."""
    owners: TaskOwners

    def next_step(self, member: StreamsMember) -> StreamsMember:
        """The member after this step. Raises KafkaError FENCED_MEMBER_EPOCH."""
        if member.state is MemberState.STABLE:
            return member if member.epoch == self.assignment_epoch else self._towards_target(member, member.epoch)
        if member.state is MemberState.UNREVOKED_TASKS:
            if self._still_has(member.revoking):
                return member
            return self._towards_target(member, member.epoch + 1)
        if member.state is MemberState.UNRELEASED_TASKS:
            return self._towards_target(member, member.epoch)
        if self.reported != TaskSet():
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        return self._towards_target(member, self.assignment_epoch)

    def _still_has(self, revoking: HeldTasks) -> bool:
        return self.reported is None or revoking.has_any_of(self.reported)

    def _towards_target(self, member: StreamsMember, epoch: int) -> StreamsMember:
        active = self._active(member)
        standby = _difference(member.assigned.standby, self.target.standby, self._is_in_process(member))
        warmup = _difference(member.assigned.warmup, self.target.warmup, self._is_in_process(member))
        revoking = HeldTasks(active.revoking, standby.revoking, warmup.revoking)
        if revoking and self._still_has(revoking):
            kept = HeldTasks(active.kept, standby.kept, warmup.kept)
            return replace(
                member,
                state=MemberState.UNREVOKED_TASKS,
                epoch=epoch,
                previous_epoch=member.epoch,
                assigned=kept,
                revoking=revoking,
            )
        waits = active.waits or standby.waits or warmup.waits
        return replace(
            member,
            state=MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
            epoch=self.assignment_epoch,
            previous_epoch=member.epoch,
            assigned=HeldTasks(active.after, standby.after, warmup.after),
            revoking=HeldTasks(),
        )

    def _is_in_process(self, member: StreamsMember) -> Callable[[str, int], bool]:
        """True for a task that the member's process still has."""

        def is_in_process(subtopology_id: str, partition: int) -> bool:
            return self.owners.has(member.process_id, subtopology_id, partition)

        return is_in_process

    def _active(self, member: StreamsMember) -> _ActiveDifference:
        kept: dict[str, dict[int, int]] = {}
        revoking: dict[str, dict[int, int]] = {}
        after: dict[str, dict[int, int]] = {}
        waits = False
        for subtopology_id in dict.fromkeys((*self.target.active, *member.assigned.active)):
            wanted = self.target.active.get(subtopology_id, _NONE)
            held = member.assigned.active.get(subtopology_id, _NO_EPOCHS)
            keeps = {partition: since for partition, since in held.items() if partition in wanted}
            if keeps:
                kept[subtopology_id] = keeps
            if len(keeps) < len(held):
                revoking[subtopology_id] = {it: since for it, since in held.items() if it not in wanted}
            free = {}
            for partition in wanted - held.keys():
                if self.owners.is_active(subtopology_id, partition) or self.owners.has(
                    member.process_id, subtopology_id, partition
                ):
                    waits = True
                else:
                    free[partition] = self.assignment_epoch
            if keeps or free:
                after[subtopology_id] = {**keeps, **free}
        return _ActiveDifference(kept, revoking, after, waits)


@dataclass(frozen=True, slots=True)
class _ActiveDifference:
    """Between the active tasks that a member has, and those it shall have."""

    kept: ActiveTasks
    revoking: ActiveTasks
    after: ActiveTasks
    """Kept ones, and those that it can get now."""
    waits: bool
    """Others are not free yet."""


@dataclass(frozen=True, slots=True)
class _Difference:
    """The counterpart of `_ActiveDifference` for standby or warm-up tasks."""

    kept: Tasks
    revoking: Tasks
    after: Tasks
    waits: bool


def _difference(held: Tasks, target: Tasks, is_in_process: Callable[[str, int], bool]) -> _Difference:
    kept: dict[str, frozenset[int]] = {}
    revoking: dict[str, frozenset[int]] = {}
    after: dict[str, frozenset[int]] = {}
    waits = False
    for subtopology_id in dict.fromkeys((*target, *held)):
        wanted, had = target.get(subtopology_id, _NONE), held.get(subtopology_id, _NONE)
        keeps, missing = wanted & had, wanted - had
        free = frozenset(it for it in missing if not is_in_process(subtopology_id, it))
        waits = waits or len(free) < len(missing)
        for found, tasks in ((kept, keeps), (revoking, had - wanted), (after, keeps | free)):
            if tasks:
                found[subtopology_id] = tasks
    return _Difference(kept, revoking, after, waits)
