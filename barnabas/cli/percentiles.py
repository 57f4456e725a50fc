"""Many durations in little room: counts in buckets at most one part in 128 wide, so percentiles are right to 1%.

A core: it is given durations and never looks at a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

_PRECISION_BITS = 8
_HALF = 1 << (_PRECISION_BITS - 1)


class Histogram:
    """Durations in whole microseconds; what is below 256 µs is kept exactly."""

    __slots__ = ("_buckets", "count", "max_us", "total_us")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total_us = 0
        self.max_us = 0

    def add(self, duration_us: int, times: int = 1) -> None:
        """`duration_us` below 0 counts as 0."""
        duration_us = max(0, duration_us)
        bucket = _bucket_of(duration_us)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times
        self.total_us += duration_us * times
        self.max_us = max(self.max_us, duration_us)

    @property
    def mean_us(self) -> float:
        """0 if there is nothing."""
        return self.total_us / self.count if self.count else 0.0

    def percentiles_us(self, shares: Sequence[float]) -> list[int]:
        """For each share (0 to 1, rising) the duration that so many are not longer than; 0 if there is nothing."""
        found: list[int] = []
        wanted = list(shares)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            while len(found) < len(wanted) and seen >= wanted[len(found)] * self.count:
                found.append(min(_top_of(bucket), self.max_us))
        return found + [self.max_us] * (len(wanted) - len(found))


def _bucket_of(duration_us: int) -> int:
    """Buckets are numbered in the order of what they hold."""
    shift = max(0, duration_us.bit_length() - _PRECISION_BITS)
    return shift * _HALF + (duration_us >> shift)


def _top_of(bucket: int) -> int:
    """The longest duration of a bucket."""
    shift = max(0, bucket // _HALF - 1)
    return ((bucket - shift * _HALF + 1) << shift) - 1
