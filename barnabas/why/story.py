"""Makes one story of what several nodes tell: in order of time, each thing once, by whom it was decided. A core.

Decisions are as nodes' pages give them (`runtime.decisions.Decision.as_json`). Nodes may be of another version, or
worse: what is no decision is passed over.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]

MAX_NEAR = 5
_NODE = re.compile(r"(broker|controller)-(\d+)")
_PARTITION = re.compile(r"(.+)-(\d+)")
_KINDS = ("group", "transaction", "topic")


@dataclass(slots=True)
class Event:
    """Something that was decided, once."""

    decision: Json
    """As who decided it tells; if that node is gone, as another one heard it."""
    cause: str
    seen_by: list[Json] = field(default_factory=list)
    """Others who tell of it: who carried it out, or asked for it."""

    @property
    def what(self) -> str:
        """Without the cause."""
        told, cause = str(self.decision["told"]), str(self.decision.get("cause", ""))
        return told.removesuffix(cause).removesuffix(": ") if cause else told

    def to_json(self) -> dict[str, Any]:
        told = f"{self.what}: {self.cause}" if self.cause else self.what
        return {**self.decision, "told": told, "cause": self.cause, "seen_by": self.seen_by}


def read_decisions(page: object) -> list[Json]:
    """What `/decisions` answers, without what is no decision."""
    found = page.get("decisions") if isinstance(page, Mapping) else None
    return [it for it in found if _is_decision(it)] if isinstance(found, list) else []


def read_subjects(page: object) -> list[str]:
    """What `/subjects` answers."""
    found = page.get("subjects") if isinstance(page, Mapping) else None
    return [it for it in found if isinstance(it, str)] if isinstance(found, list) else []


def subjects_of(decision: Json) -> list[str]:
    """All that it is part of the story of."""
    also = decision.get("also")
    return [decision["subject"], *(it for it in also if isinstance(it, str))] if also else [decision["subject"]]


def _is_decision(it: object) -> bool:
    return (
        isinstance(it, Mapping)
        and all(isinstance(it.get(name), str) for name in ("node", "kind", "subject", "told", "cause"))
        and all(type(it.get(name)) is int for name in ("number", "at_ms"))
        and isinstance(it.get("facts"), Mapping)
        and isinstance(it.get("also", []), list)
    )


# Which subjects are meant


def meant(text: str, known: Sequence[str]) -> list[str]:
    """Those of `known` that a person means by `text`: a partition, a topic with all its partitions, a node, the id of
    a group or of a transaction.
    """
    names = [text, *(f"{kind} {text}" for kind in _KINDS)]
    node = _NODE.fullmatch(text)
    if node:
        names.append(f"{node[1]} {node[2]}")
    partition = _PARTITION.fullmatch(text)
    if partition:
        names.append(f"topic {partition[1]}")
    every = set(known)
    found = [name for name in names if name in every]
    if found == names[-1:] and partition and not node:
        # Only the topic is known: whether it has that partition is another question.
        return found
    partitions = [it for it in known if (of := _PARTITION.fullmatch(it)) and of[1] == text]
    return found + sorted(partitions, key=lambda name: int(name.rpartition("-")[2]))


def near(text: str, known: Sequence[str]) -> list[str]:
    """Subjects that could have been meant."""
    bare = {it.partition(" ")[2] if it.startswith(tuple(f"{kind} " for kind in _KINDS)) else it: it for it in known}
    close = [bare[it] for it in difflib.get_close_matches(text, list(bare), n=MAX_NEAR, cutoff=0.5)]
    beginning = [it for name, it in bare.items() if name.startswith(text)]
    return list(dict.fromkeys([*close, *beginning]))[:MAX_NEAR]


# One story of many


def story(decisions: Iterable[Json]) -> list[Event]:
    """Everything once, oldest first."""
    ordered = sorted(decisions, key=lambda it: (it["at_ms"], it["node"], it["number"]))
    unique = {(it["node"], it["number"], it["at_ms"]): it for it in ordered}.values()
    events = [Event(it, it["cause"]) for it in unique if not _is_hearsay(it)]
    decided: dict[object, Event] = {}
    for event in events:
        decided.setdefault(_same(event.decision), event)
    # Who reads what was decided knows more than who only carries it out.
    for it in sorted(filter(_is_hearsay, unique), key=_distance):
        known = decided.get(_same(it))
        if known is not None:
            known.seen_by.append(it)
            continue
        # Whoever decided it does not answer, or has forgotten it.
        decided[_same(it)] = heard = Event(it, it["cause"])
        events.append(heard)
    events = _with_what_was_asked_for(events)
    return sorted(events, key=lambda event: (event.decision["at_ms"], event.decision["node"], event.decision["number"]))


def _is_hearsay(decision: Json) -> bool:
    return bool(decision["facts"].get("hearsay"))


def _distance(decision: Json) -> int:
    value = decision["facts"].get("hearsay")
    return value if type(value) is int else 0


def _same(decision: Json) -> tuple[object, ...]:
    """What two decisions have in common that tell of the same thing; only hearsay is compared by it."""
    facts = decision["facts"]
    epochs = [repr(facts.get(name)) for name in ("leader_epoch", "broker_epoch", "fenced")]
    return (decision["kind"], decision["subject"], *epochs)


def _with_what_was_asked_for(events: list[Event]) -> list[Event]:
    """A leader asks for another ISR, and the controller grants it: one event, with the leader's reason."""
    asked: dict[object, Event] = {}
    for event in events:
        facts = event.decision["facts"]
        if "isr_wanted" in facts and "isr" in facts and type(facts.get("partition_epoch")) is int:
            key = (event.decision["subject"], facts["partition_epoch"] + 1, repr(facts["isr_wanted"]))
            asked[key] = event
    granted: list[Event] = []
    for event in events:
        facts = event.decision["facts"]
        if event.decision["kind"] != "isr" or "isr_wanted" in facts:
            continue
        wish = asked.get((event.decision["subject"], facts.get("partition_epoch"), repr(facts.get("isr"))))
        if wish is not None and wish not in granted:
            event.cause = f"{event.cause}: {wish.cause}" if wish.cause else event.cause
            event.seen_by = [wish.decision, *event.seen_by]
            granted.append(wish)
    return [event for event in events if not any(event is it for it in granted)]
