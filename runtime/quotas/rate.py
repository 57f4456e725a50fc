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
    """Amounts of one client. Times are milliseconds on the monotonic clock."""

    __slots__ = ("_current", "_expires_ms", "_oldest_ms", "_samples", "_windows", "last_ms", "total")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: list[list[float]] = []
        """A ring of (start, last event, amount)."""
        self._current = 0
        self._oldest_ms = 0.0
        """Start of the oldest sample."""
        self._expires_ms = math.inf
        """No sample has to be emptied before this time."""
        self.total = 0.0
        """The sum of all samples; right after `window_ms` or `per_second`."""
        self.last_ms = 0
        """Time of the last record."""

    def record(self, amount: float, now_ms: int) -> None:
        """Count an amount; a negative one takes back what was counted before."""
        self.last_ms = now_ms
        samples = self._samples
        if not samples:
            self._add(now_ms)
        sample = samples[self._current]
        if now_ms - sample[0] >= self._windows.window_ms:
            sample = self._advance(now_ms)
        sample[1] = now_ms
        sample[2] += amount
        self.total += amount

    def _add(self, now_ms: int) -> None:
        self._samples.append([now_ms, now_ms, 0.0])
        self._look()

    def _advance(self, now_ms: int) -> list[float]:
        # One sample more than `samples`, as the oldest one may reach into the time that counts.
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current >= len(self._samples):
            self._add(now_ms)
        else:
            self._samples[self._current][:] = (now_ms, now_ms, 0.0)
            self._look()
        return self._samples[self._current]

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is taken now."""
        windows = self._windows
        if now_ms >= self._expires_ms:
            self._empty_old(now_ms)
        elapsed = int(now_ms - self._oldest_ms) if self._samples else 0
        missing = windows.samples - 1 - elapsed // windows.window_ms
        if missing > 0:
            elapsed += missing * windows.window_ms
        return max(elapsed, 1)

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        window_ms = self.window_ms(now_ms)
        return self.total / (window_ms / 1000)

    def _empty_old(self, now_ms: int) -> None:
        expired_ms = now_ms - self._expiry_ms
        for sample in self._samples:
            if sample[1] <= expired_ms:
                sample[:] = (now_ms, now_ms, 0.0)
        self._look()

    def _look(self) -> None:
        """Look at all samples again: one was added or emptied."""
        samples = self._samples
        self.total = sum(sample[2] for sample in samples)
        self._oldest_ms = min(sample[0] for sample in samples)
        # Later events of a sample only put its end off.
        self._expires_ms = min(sample[1] for sample in samples) + self._expiry_ms

    @property
    def _expiry_ms(self) -> int:
        return self._windows.samples * self._windows.window_ms

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
