"""Core: groups decisions that say the same about many partitions, so that one broker's restart is a few events.

ISR changes, requests for them, and elections are grouped by the brokers concerned, within one poll and node.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Decision = Mapping[str, Any]

FEWEST = 4
"""Smaller groups stay single events."""
MOST_NAMED = 20
"""Limit of partitions named in a group."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the page's list of events."""

    node: str
    subject: str
    text: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class _Change:
    """The common content of the decisions of a group."""

    subject: str
    text: str
    """With `{}` for the number of partitions."""


def grouped(news: Sequence[tuple[str, Decision]]) -> list[Event]:
    """Events for decisions and their nodes, in their order; a group takes the place of its first decision."""
    members: dict[Hashable, list[Decision]] = {}
    changes = [_change(decision) for _, decision in news]
    for (node, decision), change in zip(news, changes, strict=True):
        members.setdefault((node, change), []).append(decision)
    events = []
    for (node, decision), change in zip(news, changes, strict=True):
        group = members[node, change]
        if change is None or len(group) < FEWEST:
            events.append(Event(node, str(decision["subject"]), str(decision["told"]), decision))
        elif decision is group[0]:
            events.append(_group_event(node, change, group))
    return events


def _group_event(node: str, change: _Change, group: Sequence[Decision]) -> Event:
    text = change.text.format(len(group))
    names = [str(decision["subject"]) for decision in group[:MOST_NAMED]]
    facts = {"partitions": len(group), "for_example": names}
    decision = {**group[0], "subject": change.subject, "also": names, "told": text, "facts": facts}
    return Event(node, change.subject, text, decision)


def _change(decision: Decision) -> _Change | None:
    """None for decisions that are never grouped."""
    facts = decision["facts"]
    if decision["kind"] == "isr" and "isr_wanted" in facts:
        return _isr_change(f"broker {facts.get('leader')} asks that ", facts.get("isr"), facts["isr_wanted"])
    if decision["kind"] == "isr":
        return _isr_change("", facts.get("isr_before"), facts.get("isr"))
    if decision["kind"] == "election" and type(before := facts.get("leader_before")) is int:
        if before < 0:
            return _Change("elections", "{} partitions without a leader have one again")
        if facts.get("leader") == -1:
            return _Change(f"broker {before}", f"{{}} partitions led by broker {before} have no leader")
        return _Change(f"broker {before}", f"{{}} partitions led by broker {before} have another leader")
    return None


def _isr_change(prefix: str, before: object, after: object) -> _Change | None:
    if not isinstance(before, list | tuple) or not isinstance(after, list | tuple):
        return None
    left = [it for it in before if type(it) is int and it not in after]
    joined = [it for it in after if type(it) is int and it not in before]
    if not left and not joined:
        return None
    verbs = ("leave", "join") if prefix else ("left", "joined")
    parts = [f"{_brokers(ids)} {verb}" for ids, verb in ((left, verbs[0]), (joined, verbs[1])) if ids]
    return _Change(f"broker {(left or joined)[0]}", f"{prefix}{' and '.join(parts)} the ISR of {{}} partitions")


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
