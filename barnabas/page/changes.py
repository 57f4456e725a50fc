"""What became different between two looks at a cluster that tells no decisions: that it did, not why. A core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.decisions import DecisionKind

WHY = "seen from outside; why it is so is not told by Kafka's protocol"


@dataclass(frozen=True, slots=True)
class Led:
    """Who leads a partition, and who is in sync."""

    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """As the cluster was."""

    partitions: Mapping[tuple[str, int], Led] = field(default_factory=dict)
    """Of the topics that are looked at."""
    fenced: Mapping[int, bool] = field(default_factory=dict)
    """By broker."""
    quorum_leader: int | None = None
    quorum_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened."""

    kind: DecisionKind
    subject: str
    text: str


def changes(before: Look, after: Look) -> list[Change]:
    """Of what both know."""
    found: list[Change] = []
    if after.quorum_leader is not None and before.quorum_epoch not in (None, after.quorum_epoch):
        told = f"controller {after.quorum_leader} leads the quorum in epoch {after.quorum_epoch}"
        found.append(Change(DecisionKind.QUORUM, "quorum", f"{told}: {WHY}"))
    for broker, fenced in after.fenced.items():
        if before.fenced.get(broker, fenced) != fenced:
            name = f"broker {broker}"
            found.append(Change(DecisionKind.FENCING, name, f"{name} is {'fenced' if fenced else 'let in'}: {WHY}"))
    for (topic, index), now in after.partitions.items():
        then = before.partitions.get((topic, index))
        name = f"{topic}-{index}"
        if then is None:
            continue
        if then.leader != now.leader:
            found.append(Change(DecisionKind.ELECTION, name, f"{_election(name, then, now)}: {WHY}"))
        if set(then.isr) != set(now.isr):
            told = f"ISR of {name} changed {sorted(then.isr)} -> {sorted(now.isr)}"
            found.append(Change(DecisionKind.ISR, name, f"{told}: {WHY}"))
    return found


def _election(name: str, then: Led, now: Led) -> str:
    if now.leader is None:
        return f"{name} has no leader since epoch {now.leader_epoch}"
    if then.leader is None:
        return f"leader of {name} is {now.leader} in epoch {now.leader_epoch}, after there was none"
    return f"leader of {name} moved {then.leader} -> {now.leader} in epoch {now.leader_epoch}"
