"""Core: choice of the log to clean next, the range to clean, and its division into groups.

From its start a compacted log is *clean* up to where the last cleaning ended, then *dirty*. Its end is not cleanable
yet: the active segment, what is not durable, open transactions, records above the high watermark, and segments younger
than `min.compaction.lag.ms`. The log with the largest dirty part is cleaned first; logs older than
`max.compaction.lag.ms` precede all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from barnabas.settings.topic import TopicConfig

_MAX_RELATIVE_OFFSET = 0x7FFF_FFFF


class Phase(Enum):
    """Cleaning state of one log."""

    IDLE = auto()
    """Not being cleaned; cleaning may start."""
    CLEANING = auto()
    ABORTED = auto()
    """Being cleaned, but the result must be discarded."""
    PAUSED = auto()
    """Cleaning must not start."""


class Event(Enum):
    """Event of the cleaning state."""

    BEGIN = auto()
    PAUSE = auto()
    END = auto()
    """The cleaning in progress has ended, with whatever result."""
    RESUME = auto()


MOVES: dict[tuple[Phase, Event], tuple[Phase, int]] = {
    (Phase.IDLE, Event.BEGIN): (Phase.CLEANING, 0),
    (Phase.IDLE, Event.PAUSE): (Phase.PAUSED, +1),
    (Phase.CLEANING, Event.END): (Phase.IDLE, 0),
    (Phase.CLEANING, Event.PAUSE): (Phase.ABORTED, +1),
    (Phase.ABORTED, Event.END): (Phase.PAUSED, 0),
    (Phase.PAUSED, Event.PAUSE): (Phase.PAUSED, +1),
    (Phase.PAUSED, Event.RESUME): (Phase.PAUSED, -1),
}
"""Legal transitions, with their change to the number of pauses. Paused without pauses becomes idle."""


class CleaningState:
    """Cleaning state of one log. An illegal transition is a bug of the caller: AssertionError."""

    __slots__ = ("pauses", "phase", "problem")

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.pauses = 0
        self.problem: str | None = None
        """Reason not to clean this log again until this node restarts."""

    def move(self, event: Event) -> None:
        found = MOVES.get((self.phase, event))
        assert found is not None, f"{event.name} while {self!r}"
        self.phase, change = found
        self.pauses += change
        if self.phase is Phase.PAUSED and not self.pauses:
            self.phase = Phase.IDLE

    def interrupt(self) -> None:
        """The log has changed: its cleaner must stop and `finish`."""
        if self.phase is Phase.CLEANING:
            self.move(Event.PAUSE)

    def finish(self) -> None:
        """The cleaning has ended, and any interruption of it with it."""
        was_aborted = self.phase is Phase.ABORTED
        self.move(Event.END)
        if was_aborted:
            self.move(Event.RESUME)

    def __repr__(self) -> str:
        return f"{self.phase.name}({self.pauses})" if self.phase is Phase.PAUSED else self.phase.name


class CleanableSegment(Protocol):
    """Properties of a segment that cleaning depends on."""

    base_offset: int
    size_bytes: int

    def largest_timestamp(self) -> int:
        """Milliseconds since the epoch."""

    def first_timestamp(self) -> int:
        """Timestamp of the first batch in milliseconds since the epoch; -1 if there is none."""


class Index(Protocol):
    @property
    def size_bytes(self) -> int: ...


class IndexedSegment(Protocol):
    """Properties of a segment that grouping depends on."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def offset_index(self) -> Index: ...
    @property
    def time_index(self) -> Index: ...


class Extent(NamedTuple):
    """Dirtiness of a log."""

    first_dirty_offset: int
    end_offset: int
    """Base offset of the first segment that may not be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    """Size of the dirty segments that may be cleaned."""
    overdue_ms: int
    """Time beyond `max.compaction.lag.ms`; 0 if cleaning is not overdue."""
    is_wanted: bool = False
    """Somebody waits for it, however small the dirty part is."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    def is_worth_it(self, config: TopicConfig) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_wanted or self.overdue_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio


@dataclass(slots=True)
class Backlog:
    """Dirtiness of all compacted logs, whether or not they are worth cleaning."""

    dirty_ratio: float = 0.0
    """The largest dirty part of a log, 0 to 1."""
    overdue_ms: int = 0
    """The longest time beyond `max.compaction.lag.ms`."""


def find_first_dirty_offset(cleaned_to: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """`cleaned_to` is the end of the last cleaning. If it is impossible, everything counts as dirty."""
    if cleaned_to is None or not log_start_offset <= cleaned_to <= log_end_offset:
        return log_start_offset
    return cleaned_to


def measure(
    segments: Sequence[CleanableSegment], first_dirty_offset: int, limit_offset: int, config: TopicConfig, now_ms: int
) -> Extent:
    """Everything below `limit_offset` is stable and durable. The last segment is the active one."""
    young_ms = now_ms - config.min_compaction_lag_ms
    overdue_ms = 0
    clean_bytes = dirty_bytes = 0
    end_offset = segments[0].base_offset
    for segment, following in pairwise(segments):
        is_dirty = following.base_offset > first_dirty_offset
        if following.base_offset > limit_offset:
            break
        if is_dirty and config.min_compaction_lag_ms > 0 and segment.largest_timestamp() > young_ms:
            break
        end_offset = following.base_offset
        # The segment in which the last cleaning stopped is partly both.
        if segment.base_offset < first_dirty_offset:
            clean_bytes += segment.size_bytes
        if is_dirty:
            dirty_bytes += segment.size_bytes
            overdue_ms = max(overdue_ms, _overdue_ms(segment, config.max_compaction_lag_ms, now_ms))
    return Extent(first_dirty_offset, end_offset, clean_bytes, dirty_bytes, overdue_ms)


def _overdue_ms(segment: CleanableSegment, max_compaction_lag_ms: int, now_ms: int) -> int:
    due_ms = now_ms - max_compaction_lag_ms
    if due_ms <= 0:
        return 0
    timestamp = segment.first_timestamp()
    return max(0, due_ms - timestamp) if timestamp > 0 else 0


GroupedSegment = TypeVar("GroupedSegment", bound=IndexedSegment)


def next_group(
    segments: Sequence[GroupedSegment], end_offset: int, segment_bytes: int, index_bytes: int
) -> Sequence[GroupedSegment]:
    """The longest run of leading segments that fits into one segment, so that segments do not get smaller and smaller.

    At least one. `end_offset` is where the last of them ends.
    """
    base_offset = segments[0].base_offset
    size = offsets_size = times_size = 0
    for place, segment in enumerate(segments):
        size += segment.size_bytes
        offsets_size += segment.offset_index.size_bytes
        times_size += segment.time_index.size_bytes
        last_offset = (segments[place + 1].base_offset if place + 1 < len(segments) else end_offset) - 1
        too_far = segment.size_bytes > 0 and last_offset - base_offset > _MAX_RELATIVE_OFFSET
        if place and (size > segment_bytes or max(offsets_size, times_size) > index_bytes or too_far):
            return segments[:place]
    return segments


class Throttle:
    """Limits the I/O of all cleaning of a node to a number of bytes per second, reads and writes together."""

    __slots__ = ("_free_ms",)

    def __init__(self) -> None:
        self._free_ms = 0.0
        """Time until which the I/O so far has used up the budget."""

    def moved(self, count: int, bytes_per_second: float, now_ms: int) -> int:
        """Returns the milliseconds to wait before more I/O."""
        self._free_ms = max(self._free_ms, float(now_ms)) + 1000.0 * count / max(bytes_per_second, 1.0)
        return int(self._free_ms) - now_ms
