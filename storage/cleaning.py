"""Which log is to be cleaned next, how far, and in which portions. A core: facts in, decisions out.

From its start a compacted log is *clean* up to where the last cleaning came, then *dirty*; the end of it may not be
cleaned yet: the active segment, what is not durable, what a transaction or the high watermark still holds open, and
segments younger than `min.compaction.lag.ms`. The log with the largest dirty part is the one whose cleaning pays
most; one that has waited longer than `max.compaction.lag.ms` does not have to pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from settings.topic import TopicConfig

_MAX_RELATIVE_OFFSET = 0x7FFF_FFFF


class Phase(Enum):
    """Of the cleaning of one log."""

    IDLE = auto()
    """Nobody cleans it, anybody may begin."""
    CLEANING = auto()
    ABORTED = auto()
    """It is being cleaned, but nothing may come of it."""
    PAUSED = auto()
    """Nobody may begin to clean it."""


class Event(Enum):
    """What happens to it."""

    BEGIN = auto()
    PAUSE = auto()
    END = auto()
    """Of the cleaning that began, whatever came of it."""
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
"""Every legal move, with what it does to the number of pauses. Without pauses, paused is idle."""


class CleaningState:
    """Of one log. Any other move is a mistake of the caller: AssertionError."""

    __slots__ = ("pauses", "phase", "problem")

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.pauses = 0
        self.problem: str | None = None
        """Why nobody should try again, as long as this node runs."""

    def move(self, event: Event) -> None:
        found = MOVES.get((self.phase, event))
        assert found is not None, f"{event.name} while {self!r}"
        self.phase, change = found
        self.pauses += change
        if self.phase is Phase.PAUSED and not self.pauses:
            self.phase = Phase.IDLE

    def interrupt(self) -> None:
        """The log is no longer what was read of it: whoever cleans it has to stop, and to `finish`."""
        if self.phase is Phase.CLEANING:
            self.move(Event.PAUSE)

    def finish(self) -> None:
        """The cleaning that began is over; what interrupted it was over at once."""
        was_aborted = self.phase is Phase.ABORTED
        self.move(Event.END)
        if was_aborted:
            self.move(Event.RESUME)

    def __repr__(self) -> str:
        return f"{self.phase.name}({self.pauses})" if self.phase is Phase.PAUSED else self.phase.name


class CleanableSegment(Protocol):
    """What cleaning asks of a segment."""

    base_offset: int
    size_bytes: int

    def largest_timestamp(self) -> int:
        """Milliseconds since the epoch."""

    def first_timestamp(self) -> int:
        """Of the first batch, milliseconds since the epoch; -1 if it has none."""


class Index(Protocol):
    @property
    def size_bytes(self) -> int: ...


class IndexedSegment(Protocol):
    """What grouping asks of a segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def offset_index(self) -> Index: ...
    @property
    def time_index(self) -> Index: ...


class Extent(NamedTuple):
    """How dirty a log is."""

    first_dirty_offset: int
    end_offset: int
    """The base offset of the first segment that may not be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    """Of those that may be cleaned."""
    overdue_ms: int
    """How long it has waited beyond `max.compaction.lag.ms`; 0 if it may go on waiting."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    def is_worth_it(self, config: TopicConfig) -> bool:
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio


def find_first_dirty_offset(cleaned_to: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """`cleaned_to` is where the last cleaning came. If that cannot be, everything counts as dirty."""
    if cleaned_to is None or not log_start_offset <= cleaned_to <= log_end_offset:
        return log_start_offset
    return cleaned_to


def measure(
    segments: Sequence[CleanableSegment], first_dirty_offset: int, limit_offset: int, config: TopicConfig, now_ms: int
) -> Extent:
    """`limit_offset`: everything below it is stable and durable. The last segment is the active one."""
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
        # One in which the last cleaning stopped is both.
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
    """As many of the first segments as fit one, so that segments do not get smaller and smaller.

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
    """Keeps all cleaning of a node below a number of bytes per second, reads and writes together."""

    __slots__ = ("_free_ms",)

    def __init__(self) -> None:
        self._free_ms = 0.0
        """Until then, what was moved so far has used up what may be."""

    def moved(self, count: int, bytes_per_second: float, now_ms: int) -> int:
        """Gives how many milliseconds to wait before moving more."""
        self._free_ms = max(self._free_ms, float(now_ms)) + 1000.0 * count / max(bytes_per_second, 1.0)
        return int(self._free_ms) - now_ms
