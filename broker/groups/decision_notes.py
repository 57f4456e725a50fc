"""Core: decision notes of group coordinators: rebalances, generations, fenced members, removed groups."""

from __future__ import annotations

from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.share_group import ShareGroup
from barnabas.broker.groups.streams.streams_group import StreamsGroup
from barnabas.runtime.decisions import DecisionKind, Notes


def subject_of(group_id: str) -> str:
    return f"group {group_id}"


def note_rebalance(notes: Notes, group: ClassicGroup, cause: str) -> None:
    """Members of a classic group were asked to rejoin."""
    name = subject_of(group.group_id)
    notes.note(
        DecisionKind.REBALANCE,
        name,
        f"{name} rebalances, after generation {group.generation}",
        cause=cause,
        generation=group.generation,
        members=len(group.members),
    )


def note_generation(notes: Notes, group: ClassicGroup, late: list[str]) -> None:
    """A classic group starts its next generation or has become empty."""
    name, members = subject_of(group.group_id), len(group.members)
    cause = "all have joined"
    if late:
        cause = f"the rebalance timeout is over, and {', '.join(late)} did not join"
    if group.is_empty():
        notes.note(
            DecisionKind.LIFECYCLE,
            name,
            f"{name} is empty in generation {group.generation}",
            cause="no member remains" if not late else f"no member remains: {', '.join(late)} did not rejoin",
            generation=group.generation,
            members=0,
        )
        return
    notes.note(
        DecisionKind.REBALANCE,
        name,
        f"{name} begins generation {group.generation} with {members} members, {group.leader_id} assigns",
        cause=cause,
        generation=group.generation,
        members=members,
        leader_member=group.leader_id,
        protocol=group.protocol_name,
    )


def note_assigned(notes: Notes, group: ClassicGroup) -> None:
    """The leader of a classic group has sent the assignments."""
    name = subject_of(group.group_id)
    notes.note(
        DecisionKind.REBALANCE,
        name,
        f"{name} is stable in generation {group.generation}",
        cause=f"{group.leader_id} has assigned the partitions to {len(group.members)} members",
        generation=group.generation,
        members=len(group.members),
    )


def note_member_fenced(notes: Notes, group_id: str, member_id: str, cause: str) -> None:
    name = subject_of(group_id)
    notes.note(
        DecisionKind.FENCING,
        name,
        f"member {member_id} of {name} is fenced",
        cause=cause,
        member=member_id,
    )


def note_epoch(notes: Notes, group: ConsumerGroup | ShareGroup | StreamsGroup, epoch: int, cause: str) -> None:
    """The epoch of a group has increased, which leads to a new assignment."""
    name = subject_of(group.group_id)
    notes.note(
        DecisionKind.REBALANCE,
        name,
        f"{name} begins epoch {epoch}",
        cause=cause,
        group_epoch=epoch,
        members=len(group.members),
    )


def note_targets(
    notes: Notes, group: ConsumerGroup | ShareGroup | StreamsGroup, epoch: int, assignor: str, members: int
) -> None:
    """A group has a new target assignment."""
    name = subject_of(group.group_id)
    notes.note(
        DecisionKind.REBALANCE,
        name,
        f"{name} has a new target assignment of epoch {epoch} for {members} members",
        cause=f"the previous one had epoch {group.assignment_epoch}; assignor {assignor}",
        group_epoch=epoch,
        members=members,
        assignor=assignor,
    )


def note_gone(notes: Notes, group_id: str, cause: str) -> None:
    """The group was removed."""
    name = subject_of(group_id)
    notes.note(DecisionKind.LIFECYCLE, name, f"{name} is forgotten", cause=cause)
