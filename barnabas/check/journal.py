"""Core: the events of a run, in order: the material of stories and of the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class What(StrEnum):
    """A kind of event."""

    FAULT = "fault"
    REPAIR = "repair"
    INSTANCE = "instance"
    """It was started, or ended."""
    ASSIGNED = "assigned"
    COMMITTED = "committed"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `at_s` is in seconds since the epoch."""

    at_s: float
    what: What
    text: str
    instance: str | None = None
    partition: int | None = None
    """Partition of the input topic."""
    offset: int | None = None
    """The committed offset."""
    fault: int | None = None
    """Number of a fault, the same for its begin and its repair."""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


Span = tuple[float, float]


@dataclass(slots=True)
class Journal:
    """Events in the order of their times."""

    events: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.events.append(event)

    def fault_spans(self, end_s: float) -> list[Span]:
        """Times from a fault to its repair; to `end_s` if it was not repaired."""
        began: dict[int, float] = {}
        spans = []
        for event in self.events:
            if event.fault is None:
                continue
            if event.what is What.FAULT:
                began[event.fault] = event.at_s
            elif event.what is What.REPAIR and event.fault in began:
                spans.append((began.pop(event.fault), event.at_s))
        return sorted([*spans, *((start, end_s) for start in began.values())])

    def of(self, *kinds: What, partition: int | None = None) -> Iterator[Event]:
        """Events of these kinds; those of other partitions are left out."""
        for event in self.events:
            if event.what in kinds and (partition is None or event.partition in (None, partition)):
                yield event


def calm_spans(faults: Iterable[Span], start_s: float, end_s: float) -> list[Span]:
    """Times between `start_s` and `end_s` without a fault."""
    calm, at = [], start_s
    for begin, end in sorted(faults):
        if begin > at:
            calm.append((at, min(begin, end_s)))
        at = max(at, end)
    if at < end_s:
        calm.append((at, end_s))
    return [(begin, end) for begin, end in calm if end > begin]


def longest_calm(calm: Sequence[Span], start_s: float, end_s: float) -> float:
    """Seconds of the longest time without a fault within `start_s` to `end_s`."""
    return max((min(end, end_s) - max(begin, start_s) for begin, end in calm), default=0.0)
