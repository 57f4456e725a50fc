"""Core: differences between two polls of a cluster whose nodes export no decisions, such as Apache Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.runtime.decisions import DecisionKind

WHY = "observed by polling; Kafka's protocol does not report the cause"


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Leader, leader epoch and ISR of a partition."""

    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster at one poll."""

    partitions: Mapping[tuple[str, int], PartitionView] = field(default_factory=dict)
    """Partitions of the topics shown."""
    fenced: Mapping[int, bool] = field(default_factory=dict)
    """Whether each broker is fenced."""
    quorum_leader: int | None = None
    quorum_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One difference."""

    kind: DecisionKind
    subject: str
    text: str


def changes(before: ClusterView, after: ClusterView) -> list[Change]:
    """Differences of the things present in both."""
    found: list[Change] = []
    if after.quorum_leader is not None and before.quorum_epoch not in (None, after.quorum_epoch):
        text = f"controller {after.quorum_leader} leads the quorum in epoch {after.quorum_epoch}"
        found.append(Change(DecisionKind.QUORUM, "quorum", f"{text}: {WHY}"))
    for broker, fenced in after.fenced.items():
        if before.fenced.get(broker, fenced) != fenced:
            name = f"broker {broker}"
            found.append(Change(DecisionKind.FENCING, name, f"{name} is {'fenced' if fenced else 'unfenced'}: {WHY}"))
    for (topic, index), now in after.partitions.items():
        then = before.partitions.get((topic, index))
        name = f"{topic}-{index}"
        if then is None:
            continue
        if then.leader != now.leader:
            found.append(Change(DecisionKind.ELECTION, name, f"{_election(name, then, now)}: {WHY}"))
        if set(then.isr) != set(now.isr):
            text = f"ISR of {name} changed {sorted(then.isr)} -> {sorted(now.isr)}"
            found.append(Change(DecisionKind.ISR, name, f"{text}: {WHY}"))
    return found


def _election(name: str, then: PartitionView, now: PartitionView) -> str:
    if now.leader is None:
        return f"{name} has no leader since epoch {now.leader_epoch}"
    if then.leader is None:
        return f"leader of {name} is {now.leader} in epoch {now.leader_epoch}, after there was none"
    return f"leader of {name} moved {then.leader} -> {now.leader} in epoch {now.leader_epoch}"
