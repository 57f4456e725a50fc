"""Core: lags of groups over time, and how fast their topics are written and read, within bounds of memory.

A group is followed from the time at which a reader opens it, until nobody has opened it for `KEPT_MS`, or until
`MOST_GROUPS` others were opened later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.group_views.progress import Progress

INTERVAL_MS = 5_000
"""Least time between two samples of a group."""
KEPT_MS = 30 * 60_000
MOST_GROUPS = 10
MOST_SAMPLES = KEPT_MS // INTERVAL_MS
MOST_TOPICS = 20

_Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LagSample:
    """A group at one time. Rates are means since the sample before, in records per second."""

    at_ms: int
    lag: int | None
    """Records; None if it is unknown in all partitions."""
    written: float | None
    read: float | None

    def to_json(self) -> list[float | None]:
        return [self.at_ms, self.lag, self.written, self.read]


@dataclass(frozen=True, slots=True)
class TopicRate:
    """One topic of a group. Rates are None after the first sample."""

    topic: str
    partitions: int
    lag: int | None
    written: float | None
    read: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partitions": self.partitions,
            "lag": self.lag,
            "written": self.written,
            "read": self.read,
        }


@dataclass(slots=True)
class GroupLag:
    """Samples of one group, the oldest first."""

    opened_ms: int
    samples: deque[LagSample] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    topics: list[TopicRate] = field(default_factory=list)
    """The state at the last sample, by name."""
    topics_left_out: int = 0
    _offsets: dict[_Place, tuple[int | None, int | None]] = field(default_factory=dict)
    """End and committed offset of each partition at the last sample."""

    def is_due(self, now_ms: int) -> bool:
        return not self.samples or not 0 <= now_ms - self.samples[-1].at_ms < INTERVAL_MS

    def add(self, at_ms: int, progress: Sequence[Progress]) -> None:
        """Take a sample, unless the last one is newer than `INTERVAL_MS`."""
        if not self.is_due(at_ms):
            return
        seconds = (at_ms - self.samples[-1].at_ms) / 1000 if self.samples else 0.0
        before, self._offsets = self._offsets, {(it.topic, it.partition): (it.end, it.committed) for it in progress}
        by_topic: dict[str, list[Progress]] = {}
        for it in progress:
            by_topic.setdefault(it.topic, []).append(it)
        rates = [_rate(topic, found, before, seconds) for topic, found in sorted(by_topic.items())]
        self.topics, self.topics_left_out = rates[:MOST_TOPICS], max(0, len(rates) - MOST_TOPICS)
        written, read = _sum(it.written for it in rates), _sum(it.read for it in rates)
        self.samples.append(LagSample(at_ms, _sum(it.lag for it in rates), written, read))

    def to_json(self) -> dict[str, Any]:
        return {
            "interval_ms": INTERVAL_MS,
            "samples": [it.to_json() for it in self.samples],
            "topics": [it.to_json() for it in self.topics],
            "topics_left_out": self.topics_left_out,
        }


class LagHistory:
    """Followed groups by id, those first that were opened least recently."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupLag] = {}

    def open(self, group_id: str, now_ms: int) -> GroupLag:
        """Follow a group that a reader looks at."""
        found = self._groups.pop(group_id, None) or GroupLag(now_ms)
        found.opened_ms = now_ms
        self._groups[group_id] = found
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
        return found

    def get(self, group_id: str) -> GroupLag | None:
        return self._groups.get(group_id)

    def due(self, now_ms: int) -> list[str]:
        """Groups whose next sample is due; those that nobody looked at for `KEPT_MS` are forgotten."""
        for group_id, found in list(self._groups.items()):
            if now_ms - found.opened_ms > KEPT_MS:
                del self._groups[group_id]
        return [group_id for group_id, found in self._groups.items() if found.is_due(now_ms)]


def _rate(
    topic: str, progress: Sequence[Progress], before: dict[_Place, tuple[int | None, int | None]], seconds: float
) -> TopicRate:
    """The rates of partitions with known offsets at both times; offsets that went back count as no progress."""
    written: list[int] = []
    read: list[int] = []
    for it in progress:
        end, committed = before.get((topic, it.partition), (None, None))
        if end is not None and it.end is not None:
            written.append(max(0, it.end - end))
        if committed is not None and it.committed is not None:
            read.append(max(0, it.committed - committed))
    per_second = [sum(found) / seconds if found and seconds > 0 else None for found in (written, read)]
    return TopicRate(topic, len(progress), _sum(it.lag for it in progress), *per_second)


def _sum(values: Iterable[float | None]) -> Any:
    """None if all are None."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
