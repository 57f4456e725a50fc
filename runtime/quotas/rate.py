"""Core: the rate of a quota: amounts by second over the last samples, by Kafka's own arithmetic.

A sample collects what is recorded within `window_ms` of its first amount. Samples without an event in the last
`samples * window_ms` are emptied. The rate divides their sum by the time since the oldest sample began, but by no less
than `samples - 1` whole windows: a burst after a pause counts as if it took that long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_THROTTLE_MS = 2**31 - 1
"""The field `throttle_time_ms` has 32 bits."""


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """`quota.window.num` and `quota.window.size.seconds`."""

    samples: int = 11
    window_ms: int = 1_000

    @property
    def full_seconds(self) -> float:
        """The seconds whose quota may be used at once."""
        return (self.samples - 1) * self.window_ms / 1000


class Rate:
    """What one client used lately. Times are milliseconds on the monotonic clock."""

    __slots__ = ("_current", "_samples", "_windows", "last_ms")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: list[list[float]] = []
        """Rings of (start, last event, amount)."""
        self._current = 0
        self.last_ms = 0
        """Time of the last record."""

    def record(self, amount: float, now_ms: int) -> None:
        """Count an amount; a negative one takes back what was counted before."""
        self.last_ms = now_ms
        samples, windows = self._samples, self._windows
        if not samples:
            samples.append([now_ms, now_ms, 0.0])
        sample = samples[self._current]
        if now_ms - sample[0] >= windows.window_ms:
            sample = self._advance(now_ms)
        sample[1] = now_ms
        sample[2] += amount

    def _advance(self, now_ms: int) -> list[float]:
        # One sample more than `samples`, as the oldest one may reach into the time that counts.
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current >= len(self._samples):
            self._samples.append([now_ms, now_ms, 0.0])
        else:
            self._samples[self._current][:] = (now_ms, now_ms, 0.0)
        return self._samples[self._current]

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is taken now."""
        windows = self._windows
        self._empty_old(now_ms)
        oldest = min((sample[0] for sample in self._samples), default=now_ms)
        elapsed = int(now_ms - oldest)
        missing = windows.samples - 1 - elapsed // windows.window_ms
        if missing > 0:
            elapsed += missing * windows.window_ms
        return max(elapsed, 1)

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        window_ms = self.window_ms(now_ms)
        return self.total / (window_ms / 1000)

    @property
    def total(self) -> float:
        """The sum of all samples."""
        return sum(sample[2] for sample in self._samples)

    def _empty_old(self, now_ms: int) -> None:
        expired_ms = now_ms - self._windows.samples * self._windows.window_ms
        for sample in self._samples:
            if sample[1] <= expired_ms:
                sample[:] = (now_ms, now_ms, 0.0)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """The time that brings the rate back to `bound`; 0 if it is not above."""
        window_ms = self.window_ms(now_ms)
        rate = self.total / (window_ms / 1000)
        if rate <= bound:
            return 0
        return rounded_ms((rate - bound) / bound * window_ms) if bound > 0 else MOST_THROTTLE_MS


def rounded_ms(milliseconds: float) -> int:
    """The nearest whole number, halves up, within 32 bits."""
    if milliseconds >= MOST_THROTTLE_MS:
        return MOST_THROTTLE_MS
    return math.floor(milliseconds + 0.5)


class Average:
    """The mean of the amounts of the last samples: Kafka's `Avg` over two windows of 30 s."""

    __slots__ = ("_counts", "_rate")

    def __init__(self) -> None:
        windows = QuotaWindows(2, 30_000)
        self._rate = Rate(windows)
        self._counts = Rate(windows)

    def record(self, amount: float, now_ms: int) -> None:
        self._rate.record(amount, now_ms)
        self._counts.record(1, now_ms)

    def mean(self, now_ms: int) -> float:
        """NaN without amounts."""
        self._rate.window_ms(now_ms)
        self._counts.window_ms(now_ms)
        count = self._counts.total
        return self._rate.total / count if count else math.nan
