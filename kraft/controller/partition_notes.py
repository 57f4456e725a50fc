"""Decision notes of a change of a partition: an election, another ISR, the begin or end of a reassignment; the cause.

Reads a partition before a record and after it; decides nothing. The caller knows the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from barnabas.kraft.controller.state import ControllerState
from barnabas.kraft.metadata.image import NO_LEADER, PartitionImage, TopicImage
from barnabas.kraft.metadata.replay import merge_change
from barnabas.protocol.messages.metadata_log import PartitionChangeRecord
from barnabas.runtime.decisions import DecisionKind, Fact, Note

Located = tuple[TopicImage, int, PartitionImage]
"""A topic, the index of a partition of it, and that partition."""


def note_change(
    state: ControllerState, located: Located, record: PartitionChangeRecord, cause: str, *, also: tuple[str, ...] = ()
) -> None:
    """Note the change that `record` makes to a partition, because of `cause`. `also`: the brokers that caused it."""
    topic, partition_id, before = located
    after = merge_change(before, record)
    name = f"{topic.name}-{partition_id}"
    facts: dict[str, Fact] = {
        "leader": after.leader,
        "leader_before": before.leader,
        "leader_epoch": after.leader_epoch,
        "partition_epoch": after.partition_epoch,
        "isr": after.isr,
        "isr_before": before.isr,
        "replicas": after.replicas,
    }
    if before.elr or after.elr:
        facts |= {"elr": after.elr, "elr_before": before.elr}
    note = partial(_note, state, name, facts=facts, also=also)
    if after.leader != before.leader:
        what = describe_election(name, before, after)
        chosen = f"{cause}; {_why_this_one(before, after)}"
        note(DecisionKind.ELECTION, what, chosen)
    elif after.isr != before.isr:
        what = f"ISR of {name} changed {list(before.isr)} -> {list(after.isr)} in leader epoch {after.leader_epoch}"
        note(DecisionKind.ISR, what, cause)
    elif after.elr != before.elr:
        what = f"eligible leader replicas of {name} changed {list(before.elr)} -> {list(after.elr)}"
        note(DecisionKind.ISR, what, cause)
    _note_reassignment(state, name, before, after, cause, facts)


def describe_election(name: str, before: PartitionImage, after: PartitionImage) -> str:
    """The new leader, without the cause."""
    if after.leader == NO_LEADER:
        return f"{name} has no leader since epoch {after.leader_epoch}"
    if before.leader == NO_LEADER:
        return f"leader of {name} is {after.leader} in epoch {after.leader_epoch}, after there was none"
    return f"leader of {name} moved {before.leader} -> {after.leader} in epoch {after.leader_epoch}"


def is_alarming(note: Note) -> bool:
    """True if a decision takes a partition offline, or may lose records of it."""
    if note.kind is not DecisionKind.ELECTION:
        return False
    leader, isr, elr = (note.facts.get(name) for name in ("leader", "isr_before", "elr_before"))
    known = {*(isr if isinstance(isr, tuple) else ()), *(elr if isinstance(elr, tuple) else ())}
    return leader is not None and leader not in known


def _note_reassignment(
    state: ControllerState, name: str, before: PartitionImage, after: PartitionImage, cause: str, facts: dict[str, Fact]
) -> None:
    was_moving = bool(before.adding_replicas or before.removing_replicas)
    is_moving = bool(after.adding_replicas or after.removing_replicas)
    wanted = [it for it in after.replicas if it not in after.removing_replicas]
    if is_moving and (before.adding_replicas, before.removing_replicas) != (
        after.adding_replicas,
        after.removing_replicas,
    ):
        held = [it for it in before.replicas if it not in before.adding_replicas]
        what = f"{name} begins to move from brokers {held} to {wanted}"
        facts = {**facts, "adding": after.adding_replicas, "removing": after.removing_replicas}
    elif was_moving and not is_moving:
        cancelled = any(it in after.replicas for it in before.removing_replicas)
        what = f"the move of {name} {'was given up, it stays' if cancelled else 'is complete, it is'} on {wanted}"
        cause = cause if cancelled else f"all of them are in sync; {cause}"
    elif after.replicas != before.replicas:
        what = f"replicas of {name} changed {list(before.replicas)} -> {wanted}"
    else:
        return
    _note(state, name, DecisionKind.REASSIGNMENT, what, cause, facts=facts)


def _note(  # noqa: PLR0913 - all of a note
    state: ControllerState,
    name: str,
    kind: DecisionKind,
    what: str,
    cause: str,
    *,
    facts: Mapping[str, Fact],
    also: Sequence[str] = (),
) -> None:
    state.notes.append(Note(kind, name, what, also, cause, facts))


def _why_this_one(before: PartitionImage, after: PartitionImage) -> str:
    """Reason for the choice of the new leader, or why there is none."""
    leader, replicas = after.leader, list(after.replicas)
    if leader == NO_LEADER:
        return f"no replica of {replicas} that has all that was committed may lead, ISR {list(after.isr)}" + (
            f" and ELR {list(after.elr)}" if after.elr else ""
        )
    if leader in before.isr or (leader in after.isr and len(after.isr) > 1):
        return f"{leader} was first in sync among replicas {replicas}"
    if leader in before.elr:
        return f"nobody in sync was left; {leader} was in the ELR {list(before.elr)}, it has all that was committed"
    if leader in before.last_known_elr:
        return f"nobody else was left, {leader} was the last that had all; whether it lacks records cannot be known"
    return f"{leader} was not in sync and is taken all the same: records may be lost"
