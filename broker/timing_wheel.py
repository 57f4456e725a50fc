"""Core: a hierarchical timing wheel, which holds every deadline of a node in O(1).

A wheel of n buckets with a tick of u holds deadlines within n*u; later ones go to an overflow wheel whose tick is n*u,
created when first needed. When a bucket of an overflow wheel is due, its entries are placed again, one wheel lower.
Buckets with entries are in one heap, so idle time costs no ticks.

The wheel has no clock: `advance` gets the time. Milliseconds are those of the caller's clock. It does not sleep either:
see `broker.timers`.

The idea is from Varghese and Lauck; the shape (tick 1 ms, 20 buckets, one queue of non-empty buckets) is that of Apache
Kafka's purgatory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

Callback = Callable[[], None]

NEVER_MS = 1 << 62
MAX_SEARCHED = 64
"""A bucket of an overflow wheel with more entries is not searched for the earliest."""


class _Bucket:
    """Entries due within one tick of one wheel."""

    __slots__ = ("entries", "expiration_ms")

    def __init__(self) -> None:
        # A dict, not a list: removal is O(1), and iteration is in the order of insertion, never of addresses.
        self.entries: dict[TimerEntry, None] = {}
        # When the bucket is due; -1 while it is in no heap.
        self.expiration_ms = -1


class TimerEntry:
    """One deadline. `cancel` does nothing once the callback has run."""

    __slots__ = ("_bucket", "callback", "deadline_ms")

    def __init__(self, deadline_ms: int, callback: Callback) -> None:
        self.deadline_ms = deadline_ms
        self.callback: Callback | None = callback
        self._bucket: _Bucket | None = None

    def cancel(self) -> None:
        self.callback = None
        bucket = self._bucket
        if bucket is not None:
            self._bucket = None
            bucket.entries.pop(self, None)

    @property
    def pending(self) -> bool:
        """Neither run nor cancelled."""
        return self.callback is not None


class _Level:
    """One wheel. Its current bucket starts at `current_ms` and is over; it takes deadlines before `end_ms`."""

    __slots__ = ("buckets", "current_ms", "end_ms", "interval_ms", "tick_ms")

    def __init__(self, tick_ms: int, size: int, now_ms: int) -> None:
        self.tick_ms = tick_ms
        self.interval_ms = tick_ms * size
        self.turn_to(now_ms)
        self.buckets = [_Bucket() for _ in range(size)]

    def turn_to(self, now_ms: int) -> None:
        self.current_ms = now_ms - now_ms % self.tick_ms
        self.end_ms = self.current_ms + self.interval_ms


class TimingWheel:
    """Deadlines in whole milliseconds. Callbacks run inside `advance`, in the order of their deadlines."""

    def __init__(self, now_ms: int, *, size: int = 20) -> None:
        assert size >= 2, "a wheel of one bucket would never turn"
        self._size = size
        self._levels = [_Level(1, size, now_ms)]
        self._heap: list[tuple[int, int, _Bucket]] = []
        self._queued = 0
        # Entries that were due when added, or were left when a callback raised: the next `advance` runs them first.
        self._due: deque[TimerEntry] = deque()
        # The last result of `next_deadline_ms`.
        self._reported_ms = NEVER_MS
        self.on_earlier_deadline: Callback | None = None
        """Called when a deadline is added before the last result of `next_deadline_ms`: a sleeper has to wake up."""

    def add(self, deadline_ms: int, callback: Callback) -> TimerEntry:
        """Run `callback` at the first `advance` at or after `deadline_ms`; at the very next one if that has passed."""
        entry = TimerEntry(deadline_ms, callback)
        if not self._place(entry):
            self._due.append(entry)
            if len(self._due) == 1 and self.on_earlier_deadline is not None:
                self.on_earlier_deadline()
        return entry

    def advance(self, now_ms: int, most: int | None = None) -> int:
        """Run everything due at `now_ms`, also what callbacks add for that time, but at most `most` callbacks: the next
        calls run the rest. Returns how many ran.

        If a callback raises, the exception propagates, and the other due callbacks run at the next `advance`.
        """
        ran = self._run_due(most)
        heap = self._heap
        while heap and heap[0][0] <= now_ms and not self._due:
            expiration_ms, _, bucket = heappop(heap)
            self._turn_to(expiration_ms)
            entries = bucket.entries
            bucket.entries = {}
            bucket.expiration_ms = -1
            for entry in entries:
                # Due now, or placed one wheel lower: a task never runs before its own deadline.
                if not self._place(entry):
                    entry._bucket = None
                    self._due.append(entry)
            ran += self._run_due(None if most is None else most - ran)
        if not self._due:
            self._turn_to(now_ms)
        return ran

    def next_deadline_ms(self) -> int | None:
        """The time at which `advance` has something to do next (at most the earliest deadline), or None."""
        deadline_ms = self._next_deadline_ms()
        self._reported_ms = NEVER_MS if deadline_ms is None else deadline_ms
        return deadline_ms

    def _next_deadline_ms(self) -> int | None:
        due = self._due
        while due and due[0].callback is None:
            due.popleft()
        if due:
            return self._levels[0].current_ms
        heap = self._heap
        while heap:
            expiration_ms, _, bucket = heap[0]
            entries = bucket.entries
            if entries:
                if len(entries) > MAX_SEARCHED:
                    return expiration_ms
                # The earliest entry, not the start of the bucket: waking only to place entries one wheel lower is not
                # needed. In any other bucket nothing is due before its start.
                earliest_ms = min(entry.deadline_ms for entry in entries)
                return min([earliest_ms, *(child[0] for child in heap[1:3])])
            # All entries were cancelled.
            heappop(heap)
            bucket.expiration_ms = -1
        return None

    def __len__(self) -> int:
        """Entries that have neither run nor been cancelled. Walks all wheels: for metrics only."""
        placed = sum(len(bucket.entries) for level in self._levels for bucket in level.buckets)
        return placed + sum(1 for entry in self._due if entry.callback is not None)

    def describe(self) -> str:
        """The wheels as spans of time, one line for each: `[0,0] [1,1] [2,2]`."""
        lines = []
        for level in self._levels:
            starts = range(level.current_ms, level.current_ms + level.interval_ms, level.tick_ms)
            lines.append(" ".join(f"[{start},{start + level.tick_ms - 1}]" for start in starts))
        return "\n".join(lines)

    def _place(self, entry: TimerEntry) -> bool:
        """Put `entry` into its bucket; False if it is due."""
        deadline_ms = entry.deadline_ms
        levels = self._levels
        if deadline_ms <= levels[0].current_ms:
            return False
        for level in levels:
            if deadline_ms < level.end_ms:
                break
        else:
            level = self._overflow_for(deadline_ms)
        ticks = deadline_ms // level.tick_ms
        bucket = level.buckets[ticks % self._size]
        entry._bucket = bucket
        bucket.entries[entry] = None
        # The bucket is in the heap once per turn of the wheel: only a changed expiration adds it.
        expiration_ms = ticks * level.tick_ms
        if bucket.expiration_ms != expiration_ms:
            bucket.expiration_ms = expiration_ms
            self._queued += 1
            heap = self._heap
            heappush(heap, (expiration_ms, self._queued, bucket))
        if deadline_ms < self._reported_ms:
            self._reported_ms = deadline_ms
            if self.on_earlier_deadline is not None:
                self.on_earlier_deadline()
        return True

    def _overflow_for(self, deadline_ms: int) -> _Level:
        level = self._levels[-1]
        while deadline_ms >= level.end_ms:
            level = _Level(level.interval_ms, self._size, level.current_ms)
            self._levels.append(level)
        return level

    def _turn_to(self, now_ms: int) -> None:
        for level in self._levels:
            if now_ms < level.current_ms + level.tick_ms:
                return
            level.turn_to(now_ms)

    def _run_due(self, most: int | None) -> int:
        ran = 0
        due = self._due
        while due and ran != most:
            entry = due.popleft()
            callback = entry.callback
            if callback is not None:
                entry.callback = None
                ran += 1
                callback()
        return ran
