"""Core: target assignments of share groups (KIP-932). Small ones are computed at once, in the heartbeat that needs it.
Large ones are computed in turns of the event loop, and members keep the last one meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now
from barnabas.broker.groups import share_records as records
from barnabas.broker.groups.assignment_turns import AssignmentTurns, Computed
from barnabas.broker.groups.assignors.assignor import MemberSpec, Pace
from barnabas.broker.groups.assignors.simple import assign_shares
from barnabas.broker.groups.consumer_member import Partitions
from barnabas.broker.groups.decision_notes import note_targets
from barnabas.broker.groups.group import GroupContext
from barnabas.broker.groups.group_configs import share_assignment_interval_ms
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.share_group import ASSIGNOR_NAME, ShareGroup
from barnabas.broker.groups.share_member import ShareMember
from barnabas.broker.groups.target_assignment import (
    PARTITIONS_OF_A_MEMBER,
    TargetAssignment,
    changed_targets,
    number_of,
    topic_ids,
)
from barnabas.runtime.at_once import Stepwise, at_once
from barnabas.runtime.decisions import Notes


class ShareAssignments:
    """Assignments of the share groups of one partition of `__consumer_offsets`."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._turns: AssignmentTurns[ShareGroup, Partitions] = AssignmentTurns("share-assignment", context, self)

    def forget(self, group_id: str) -> None:
        """The group is deleted."""
        self._turns.forget(group_id)

    def target(self, group: ShareGroup, epoch: int, member: ShareMember, update: Update) -> TargetAssignment:
        """Target assignment of the member: a new one if the group has a new epoch, but at most one per assignment
        interval."""
        known = TargetAssignment(group.assignment_epoch, group.targets.get(member.member_id, {}))
        if group.assignment_epoch >= epoch or not self._may_assign(group, update.now):
            return known
        members = {**group.members, member.member_id: member}
        if self._turns.are_under_way(group.group_id):
            return known
        if self._turns.are_due(len(members) + number_of(group.topics.partitions()) // PARTITIONS_OF_A_MEMBER):
            # It begins after this heartbeat is written, or could not be.
            self._turns.begin(group.group_id, update.now)
            return known
        targets = at_once(self._compute_targets(group, members))
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                update.records.append(records.target_assignment(group.group_id, member_id, target))
        update.records.append(records.target_epoch(group.group_id, epoch, update.now.wall_ms))
        note_targets(update.notes, group, epoch, ASSIGNOR_NAME, len(targets))
        self._context.events.share_rebalances += 1
        return TargetAssignment(epoch, targets[member.member_id])

    def _may_assign(self, group: ShareGroup, now: Now) -> bool:
        interval_ms = share_assignment_interval_ms(self._context, group.group_id)
        # A clock that was set back must not delay assignments for long.
        return group.assignment_timestamp_ms == 0 or not 0 <= now.wall_ms - group.assignment_timestamp_ms < interval_ms

    def _compute_targets(
        self, group: ShareGroup, members: Mapping[str, ShareMember]
    ) -> Stepwise[dict[str, Partitions]]:
        """Targets of these members. The group may change meanwhile, `members` must not."""
        topics, assignable = self._context.image().topics, group.topics.partitions()
        ids: dict[frozenset[str], frozenset[bytes]] = {}
        specs: dict[str, MemberSpec] = {}
        pace = Pace()
        for each in members.values():
            if each.topic_names not in ids:
                ids[each.topic_names] = topic_ids(each.topic_names, topics)
            target = group.targets.get(each.member_id, {})
            specs[each.member_id] = MemberSpec(None, ids[each.topic_names], target)
            if pace.is_full(1 + len(each.topic_names)):
                yield
        return (yield from assign_shares(specs, assignable))

    # -- Assigned

    def find(self, group_id: str) -> ShareGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def compute(self, group: ShareGroup) -> Stepwise[Computed[Partitions] | None]:
        epoch, members = group.epoch, dict(group.members)
        if not members or epoch <= group.assignment_epoch:
            return None
        targets = yield from self._compute_targets(group, members)
        return Computed(epoch, (yield from changed_targets(group.targets, targets)))

    def member_now(self, group: ShareGroup, member_id: str, instance_id: str | None) -> str | None:
        return member_id if member_id in group.members else None

    def size_of(self, target: Partitions) -> int:
        return number_of(target)

    def target_record(self, group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
        return records.target_assignment(group_id, member_id, target)

    def epoch_record(self, group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
        return records.target_epoch(group_id, epoch, wall_ms)

    def assigned(self, group: ShareGroup, epoch: int, notes: Notes) -> None:
        note_targets(notes, group, epoch, ASSIGNOR_NAME, len(group.members))
        self._context.events.share_rebalances += 1
