"""Core: target assignments of large groups, which are computed and written in turns of the event loop.

A heartbeat begins one and gets the last target. Timers take the steps of the computation, one in a turn, and then write
targets, some in a turn and the epoch with the last ones. A member that meets a target earlier does no harm: nothing is
assigned to it before its owner has released it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Operation, Outcome
from barnabas.broker.groups.group import Group, GroupContext
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.decisions import Notes

Target = TypeVar("Target")
AnyGroup = TypeVar("AnyGroup", bound=Group)

MOST_AT_ONCE = 500
"""Members, and what costs as much, of an assignment that is computed within the heartbeat that needs it."""
WRITTEN_AT_ONCE = 500
"""Members, and partitions or tasks, of targets that one turn writes."""
RETRY_MS = 500
"""Delay before targets are written again that could not be written."""


@dataclass(frozen=True, slots=True)
class Computed(Generic[Target]):
    """Targets of an epoch that are to be written."""

    epoch: int
    changed: list[tuple[str, Target]]
    """Those that are not written yet, by member; the last one comes first."""
    instance_ids: Mapping[str, str] = field(default_factory=dict)
    """The group.instance.id of static members. Such a member may return under a new id meanwhile."""


class Assigned(Protocol[AnyGroup, Target]):
    """The kind of the groups: how their assignments are computed and written."""

    def find(self, group_id: str) -> AnyGroup | None:
        """None if there is no group of this kind."""

    def compute(self, group: AnyGroup) -> Stepwise[Computed[Target] | None]:
        """Targets of the group as it is now; None if it needs none. Raises KafkaError, which ends the computation: the
        next heartbeat begins another."""

    def member_now(self, group: AnyGroup, member_id: str, instance_id: str | None) -> str | None:
        """Id of the member that gets the target of `member_id`; None if it is gone."""

    def size_of(self, target: Target) -> int:
        """Number of its partitions or tasks."""

    def target_record(self, group_id: str, member_id: str, target: Target) -> CoordinatorRecord: ...

    def epoch_record(self, group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord: ...

    def assigned(self, group: AnyGroup, epoch: int, notes: Notes) -> None:
        """The target assignment of this epoch is written to its end; note that."""


class AssignmentTurns(Generic[AnyGroup, Target]):
    """Large assignments of the groups of one kind in one partition of `__consumer_offsets`."""

    def __init__(self, name: str, context: GroupContext, kind: Assigned[AnyGroup, Target]) -> None:
        """`name` is that of the timers."""
        self._name = name
        self._timers = context.timers
        self._kind = kind

    def are_due(self, size: int) -> bool:
        """True if an assignment of that size, its members and what costs as much, has to be computed in turns."""
        return size > MOST_AT_ONCE

    def are_under_way(self, group_id: str) -> bool:
        return self._timers.deadline_ms(self._key(group_id)) is not None

    def begin(self, group_id: str, now: Now) -> None:
        """Compute and write the targets in later turns, of the group as the first of them finds it."""
        self._schedule(group_id, partial(self._start, group_id), now)

    def forget(self, group_id: str) -> None:
        """The group is deleted."""
        self._timers.cancel(self._key(group_id))

    def _start(self, group_id: str, now: Now) -> Outcome:
        group = self._kind.find(group_id)
        return Outcome() if group is None else self._turn(group, self._kind.compute(group), now)

    def _turn(self, group: AnyGroup, work: Stepwise[Computed[Target] | None], now: Now) -> Outcome:
        """Timer: continue the computation; at its end begin to write."""
        try:
            next(work)
        except StopIteration as end:
            return Outcome() if end.value is None else self._write(group, end.value, now)
        except KafkaError:
            return Outcome()
        self._schedule(group.group_id, partial(self._turn, group, work), now)
        return Outcome()

    def _write(self, group: AnyGroup, computed: Computed[Target], now: Now) -> Outcome:
        """Timer: write some targets, and the epoch with the last ones."""
        outcome = Outcome()
        if group.is_empty() or self._kind.find(group.group_id) is not group:
            return outcome
        changed = computed.changed
        size = taken = 0
        while taken < len(changed) and size < WRITTEN_AT_ONCE:
            taken += 1
            member_id, target = changed[-taken]
            size += 1 + self._kind.size_of(target)
            member_now = self._kind.member_now(group, member_id, computed.instance_ids.get(member_id))
            if member_now is not None:
                outcome.records.append(self._kind.target_record(group.group_id, member_now, target))
        if taken == len(changed):
            outcome.records.append(self._kind.epoch_record(group.group_id, computed.epoch, now.wall_ms))
            self._kind.assigned(group, computed.epoch, outcome.notes)
        else:
            left = replace(computed, changed=changed[: len(changed) - taken])
            self._schedule(group.group_id, partial(self._write, group, left), now)
        outcome.failed = lambda error: self._again(group, computed, now)
        return outcome

    def _again(self, group: AnyGroup, computed: Computed[Target], now: Now) -> Outcome:
        """Retry a failed write."""
        self._schedule(group.group_id, partial(self._write, group, computed), now, RETRY_MS)
        return Outcome()

    def _schedule(self, group_id: str, operation: Operation, now: Now, delay_ms: int = 0) -> None:
        self._timers.schedule(self._key(group_id), now.monotonic_ms + delay_ms, operation)

    def _key(self, group_id: str) -> Hashable:
        return (self._name, group_id)
