"""Core: merges the decisions of several nodes into one story, ordered by time and without duplicates.

Decisions have the form of `runtime.decisions.Decision.as_json`. Nodes may be of another version or hostile: malformed
decisions are ignored.
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
_KINDS = ("group", "transaction", "topic", "principal")


@dataclass(slots=True)
class Event:
    """A decision with its cause, merged from the reports of several nodes."""

    decision: Json
    """From the node that decided; from the best-informed other node if that one does not answer."""
    cause: str
    seen_by: list[Json] = field(default_factory=list)
    """Reports of other nodes, which carried the decision out or asked for it."""

    @property
    def what(self) -> str:
        """The text without the cause."""
        text, cause = str(self.decision["told"]), str(self.decision.get("cause", ""))
        return text.removesuffix(cause).removesuffix(": ") if cause else text

    def to_json(self) -> dict[str, Any]:
        text = f"{self.what}: {self.cause}" if self.cause else self.what
        return {**self.decision, "told": text, "cause": self.cause, "seen_by": self.seen_by}


def read_decisions(page: object) -> list[Json]:
    """The well-formed decisions in an answer of `/decisions`."""
    found = page.get("decisions") if isinstance(page, Mapping) else None
    return [it for it in found if _is_decision(it)] if isinstance(found, list) else []


def read_subjects(page: object) -> list[str]:
    """The subjects in an answer of `/subjects`."""
    found = page.get("subjects") if isinstance(page, Mapping) else None
    return [it for it in found if isinstance(it, str)] if isinstance(found, list) else []


def subjects_of(decision: Json) -> list[str]:
    """Subjects whose stories contain the decision."""
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


# Subjects that match a question


def meant(text: str, known: Sequence[str]) -> list[str]:
    """Those of `known` that match `text`: a partition, a topic with its partitions, a node, a group id or a
    transactional id.
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
        # Only the topic has decisions; the partition may exist nevertheless.
        return found
    partitions = [it for it in known if (of := _PARTITION.fullmatch(it)) and of[1] == text]
    return found + sorted(partitions, key=lambda name: int(name.rpartition("-")[2]))


def near(text: str, known: Sequence[str]) -> list[str]:
    """Known subjects similar to `text`."""
    bare = {it.partition(" ")[2] if it.startswith(tuple(f"{kind} " for kind in _KINDS)) else it: it for it in known}
    close = [bare[it] for it in difflib.get_close_matches(text, list(bare), n=MAX_NEAR, cutoff=0.5)]
    beginning = [it for name, it in bare.items() if name.startswith(text)]
    return list(dict.fromkeys([*close, *beginning]))[:MAX_NEAR]


# Merging


def story(decisions: Iterable[Json]) -> list[Event]:
    """Events without duplicates, oldest first."""
    ordered = sorted(decisions, key=lambda it: (it["at_ms"], it["node"], it["number"]))
    unique = {(it["node"], it["number"], it["at_ms"]): it for it in ordered}.values()
    events = [Event(it, it["cause"]) for it in unique if not _is_hearsay(it)]
    decided: dict[object, Event] = {}
    for event in events:
        decided.setdefault(_same(event.decision), event)
    # A controller that read the record knows more than a broker that carries it out.
    for it in sorted(filter(_is_hearsay, unique), key=_distance):
        known = decided.get(_same(it))
        if known is not None:
            known.seen_by.append(it)
            continue
        # The node that decided does not answer, or no longer has the decision.
        decided[_same(it)] = second_hand = Event(it, it["cause"])
        events.append(second_hand)
    events = _with_requests_merged(events)
    return sorted(events, key=lambda event: (event.decision["at_ms"], event.decision["node"], event.decision["number"]))


def _is_hearsay(decision: Json) -> bool:
    return bool(decision["facts"].get("hearsay"))


def _distance(decision: Json) -> int:
    value = decision["facts"].get("hearsay")
    return value if type(value) is int else 0


def _same(decision: Json) -> tuple[object, ...]:
    """Key of a decision, equal for the reports of all nodes. Second-hand reports are matched by it."""
    facts = decision["facts"]
    epochs = [repr(facts.get(name)) for name in ("leader_epoch", "broker_epoch", "fenced")]
    return (decision["kind"], decision["subject"], *epochs)


def _with_requests_merged(events: list[Event]) -> list[Event]:
    """Merges a leader's request for another ISR with the controller's grant into one event with the leader's reason."""
    requests: dict[object, Event] = {}
    for event in events:
        facts = event.decision["facts"]
        if "isr_wanted" in facts and "isr" in facts and type(facts.get("partition_epoch")) is int:
            key = (event.decision["subject"], facts["partition_epoch"] + 1, repr(facts["isr_wanted"]))
            requests[key] = event
    granted: list[Event] = []
    for event in events:
        facts = event.decision["facts"]
        if event.decision["kind"] != "isr" or "isr_wanted" in facts:
            continue
        request = requests.get((event.decision["subject"], facts.get("partition_epoch"), repr(facts.get("isr"))))
        if request is not None and request not in granted:
            event.cause = f"{event.cause}: {request.cause}" if request.cause else event.cause
            event.seen_by = [request.decision, *event.seen_by]
            granted.append(request)
    return [event for event in events if not any(event is it for it in granted)]
