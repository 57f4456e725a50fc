"""Core: assignments of consumer groups. A change of subscriptions starts a new group epoch, a new group epoch leads to
a new target assignment, and each heartbeat moves its member one step towards its target.

Knows no requests. All decisions are written into an `Update`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.assignment_turns import AssignmentTurns, Computed
from barnabas.broker.groups.assignors import ASSIGNORS, NAMES_OF_CLASSES
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_member import ConsumerMember, MemberState, Partitions
from barnabas.broker.groups.decision_notes import note_epoch, note_targets
from barnabas.broker.groups.epoch_group import RefreshDeadline
from barnabas.broker.groups.group import GroupContext
from barnabas.broker.groups.group_configs import consumer_assignment_interval_ms
from barnabas.broker.groups.group_update import Update
from barnabas.broker.groups.pattern_searches import PatternSearches
from barnabas.broker.groups.reconciliation import Reconciliation
from barnabas.broker.groups.sessions import Sessions
from barnabas.broker.groups.target_assignment import (
    PARTITIONS_OF_A_MEMBER,
    TargetAssignment,
    changed_targets,
    compute_targets,
    members_with,
    number_of,
    partitions_of,
    topic_ids,
)
from barnabas.broker.groups.topic_hashes import TopicHashes, changed_topics
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.runtime.at_once import Stepwise, at_once
from barnabas.runtime.decisions import Notes

REFRESH_INTERVAL_MS = (1 << 31) - 1
"""Maximum time between two checks of the metadata; a change of the subscribed topics triggers an earlier one."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Changes made by one heartbeat or JoinGroup of a member."""

    before: ConsumerMember
    after: ConsumerMember
    subscription_changed: bool
    """Subscribed names or pattern changed."""


class Assignments:
    """Assignments of the groups of one partition of `__consumer_offsets`."""

    def __init__(self, context: GroupContext, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions
        self._hashes = TopicHashes()
        self._turns: AssignmentTurns[ConsumerGroup, Partitions] = AssignmentTurns("consumer-assignment", context, self)
        self._patterns = PatternSearches(context, self._patterns_found)

    def loaded(self) -> None:
        """The whole log has been replayed."""
        self._patterns.loaded()

    def metadata_changed(self, delta: MetadataDelta) -> list[str]:
        """Names of the topics whose change can affect an assignment."""
        names = changed_topics(delta)
        for name in names:
            self._hashes.forget(name)
        if any(topic.before is None for topic in delta.changed_topics.values()):
            self._patterns.topics_created(delta.after.offset)
        return names

    def assignor_names(self) -> list[str]:
        """Configured assignors; the first is the default."""
        configured = self._context.settings().group_consumer_assignors
        names = dict.fromkeys(NAMES_OF_CLASSES.get(name, name) for name in configured)
        return list(names) or list(ASSIGNORS)

    def metadata_hash(self, topics: Iterable[str]) -> int:
        """Hash over these topics in the current metadata."""
        return self._hashes.of_group(topics, self._context.image())

    # -- one member

    def update_member(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        after: ConsumerMember,
        reported: Partitions | None,
        update: Update,
    ) -> ConsumerMember:
        """Returns the member's next value after updating its subscription, the group epoch, the target assignment and
        its own next step. Raises KafkaError: INVALID_REGULAR_EXPRESSION, FENCED_MEMBER_EPOCH.
        """
        joined, epoch = self.update_subscription(group, before, after, update)
        return self.reconcile(group, joined, self._target(group, epoch, joined, update), reported, update)

    def update_subscription(
        self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, update: Update
    ) -> tuple[Joined, int]:
        """Write the member if it has changed. Returns the group's epoch too, which is a new one if the subscribed
        topics have changed.
        """
        names_changed = False
        if after != before:
            update.records.append(records.member_metadata(group.group_id, after))
            names_changed = after.topic_names != before.topic_names
        pattern = self._patterns.update(group, before, after, update)
        needs_new_epoch = names_changed or pattern.resolved or group.must_reassign
        epoch = group.epoch
        if group.must_reassign:
            orphans = group.targets_without_member()
            update.records += [records.target_assignment_tombstone(group.group_id, it) for it in orphans]
        if needs_new_epoch or group.metadata_has_expired(update.now.monotonic_ms):
            cause = _reason_to_reassign(group, before, after) if needs_new_epoch else ""
            epoch = self._update_epoch(group, cause, group.subscribed.topics_with(before, after), update)
            if group.has_partition_metadata:
                update.records.append(records.partition_metadata_tombstone(group.group_id))
        return Joined(before, after, names_changed or pattern.changed), epoch

    def _target(self, group: ConsumerGroup, epoch: int, joined: Joined, update: Update) -> TargetAssignment:
        """Target assignment for this member: a new one if the group has a new epoch, but at most one per assignment
        interval. Later changes wait for the next one. One that takes long is computed in turns of the event loop;
        members keep the last one meanwhile.
        """
        member, group_id = joined.after, group.group_id
        last = TargetAssignment(group.assignment_epoch, group.target_of(member))
        if group.assignment_epoch >= epoch or not self.may_assign(group, update.now):
            return last
        if self._turns.are_under_way(group_id):
            return last
        topics = self._context.image().topics
        subscribed = {*group.subscribed, *group.subscribed.topics_of(member)}
        if self._turns.are_due(len(group.members) + 1 + partitions_of(subscribed, topics) // PARTITIONS_OF_A_MEMBER):
            # It begins after this heartbeat is written, or could not be.
            self._turns.begin(group_id, update.now)
            return last
        assignor = self._assignor(group, joined)
        targets = at_once(compute_targets(group, members_with(group, member), topics, ASSIGNORS[assignor]))
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                update.records.append(records.target_assignment(group_id, member_id, target))
        update.records.append(records.target_assignment_epoch(group_id, epoch, update.now.wall_ms))
        note_targets(update.notes, group, epoch, assignor, len(targets))
        self._context.events.consumer_rebalances += 1
        return TargetAssignment(epoch, targets[member.member_id])

    def _assignor(self, group: ConsumerGroup, joined: Joined | None = None) -> str:
        """Name of the assignor that most members prefer, or of the default."""
        names = self.assignor_names()
        changed = (None, None) if joined is None else (joined.before, joined.after)
        preferred = group.preferred_assignor(*changed)
        return preferred if preferred in names else names[0]

    def forget(self, group_id: str) -> None:
        """The group is deleted."""
        self._turns.forget(group_id)

    # -- Assigned

    def find(self, group_id: str) -> ConsumerGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def compute(self, group: ConsumerGroup) -> Stepwise[Computed[Partitions] | None]:
        epoch, members = group.epoch, dict(group.members)
        if not members or epoch <= group.assignment_epoch:
            return None
        assign = ASSIGNORS[self._assignor(group)]
        targets = yield from compute_targets(group, members, self._context.image().topics, assign)
        changed = yield from changed_targets(group.targets, targets)
        instance_ids = {it.member_id: it.instance_id for it in members.values() if it.instance_id is not None}
        return Computed(epoch, changed, instance_ids)

    def member_now(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> str | None:
        if member_id in group.members:
            return member_id
        static = group.static_member(instance_id)
        return None if static is None else static.member_id

    def size_of(self, target: Partitions) -> int:
        return number_of(target)

    def target_record(self, group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
        return records.target_assignment(group_id, member_id, target)

    def epoch_record(self, group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
        return records.target_assignment_epoch(group_id, epoch, wall_ms)

    def assigned(self, group: ConsumerGroup, epoch: int, notes: Notes) -> None:
        note_targets(notes, group, epoch, self._assignor(group), len(group.members))
        self._context.events.consumer_rebalances += 1

    def may_assign(self, group: ConsumerGroup, now: Now) -> bool:
        """True if the interval since the last target assignment is over."""
        interval_ms = consumer_assignment_interval_ms(self._context, group.group_id)
        # A clock that was set back must not delay assignments for long.
        return group.assignment_timestamp_ms == 0 or not 0 <= now.wall_ms - group.assignment_timestamp_ms < interval_ms

    def reconcile(
        self,
        group: ConsumerGroup,
        joined: Joined,
        target: TargetAssignment,
        reported: Partitions | None,
        update: Update,
    ) -> ConsumerMember:
        """Compute and write the member's next step. Raises KafkaError FENCED_MEMBER_EPOCH."""
        member = joined.after
        if not joined.subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        step = Reconciliation(
            assignment_epoch=target.epoch,
            target=target.partitions,
            subscribed_topics=topic_ids(group.subscribed.topics_of(member), self._context.image().topics),
            subscription_changed=joined.subscription_changed,
            reported=reported,
            owner_epoch=group.owners.epoch,
        )
        reconciled = step.next_step(member)
        if reconciled == member:
            return member
        update.records.append(records.current_assignment(group.group_id, reconciled))
        if not reconciled.is_classic:
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                self._sessions.expect_revocation(group.group_id, reconciled, update.now)
            else:
                self._sessions.revoked(group.group_id, reconciled.member_id)
        return reconciled

    # -- group epoch

    def _update_epoch(self, group: ConsumerGroup, cause: str, topics: Iterable[str], update: Update) -> int:
        """The group's epoch: a new one if there is a cause or the topics' hash has changed."""
        metadata_hash = self.metadata_hash(topics)
        epoch = group.epoch
        if cause or metadata_hash != group.metadata_hash:
            epoch += 1
            note_epoch(update.notes, group, epoch, cause or "partitions or racks of its topics have changed")
            update.records.append(records.group_epoch(group.group_id, epoch, metadata_hash))
        group.refresh_deadline = RefreshDeadline(update.now.monotonic_ms + REFRESH_INTERVAL_MS, epoch)
        return epoch

    def _patterns_found(self, group: ConsumerGroup, topics: Iterable[str], changed: bool, update: Update) -> None:
        """A pattern search has finished and its result is written; `topics` are the group's subscribed topics with it.
        """
        metadata_hash = self.metadata_hash(topics)
        if changed or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            update.records.append(records.group_epoch(group.group_id, epoch, metadata_hash))
            note_epoch(update.notes, group, epoch, "the topics that its patterns match have changed")
            group.refresh_deadline = RefreshDeadline(update.now.monotonic_ms + REFRESH_INTERVAL_MS, epoch)

    def remove(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], update: Update, cause: str) -> None:
        """Remove these members and start a new group epoch; the next heartbeat of any member computes the assignment.
        """
        for member in leaving:
            update.records += records.member_tombstones(group.group_id, member.member_id)
        forgotten = self._patterns.forget(group, leaving, update)
        topics = group.subscribed.topics_without(leaving, forgotten)
        metadata_hash = self.metadata_hash(topics)
        update.records.append(records.group_epoch(group.group_id, group.epoch + 1, metadata_hash))
        left = len(group.members) - len(leaving)
        note_epoch(update.notes, group, group.epoch + 1, f"{cause}; {left or 'no'} members remain")


def _reason_to_reassign(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> str:
    """Reason for a new assignment: the change that the member made."""
    if after.member_id not in group.members:
        return f"{after.member_id} joined"
    if after.topic_names != before.topic_names:
        return f"{after.member_id} changed its subscribed topics"
    if group.must_reassign:
        return "its target assignment was incomplete when this coordinator loaded it"
    return f"{after.member_id} changed its subscribed pattern"
