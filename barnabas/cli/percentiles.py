"""Core: latency histogram: logarithmic buckets with a relative width of at most 1/128, so percentiles are within 1 %.

It gets durations and reads no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

_PRECISION_BITS = 8
_HALF = 1 << (_PRECISION_BITS - 1)


class Histogram:
    """Durations in microseconds; values below 256 µs are exact."""

    __slots__ = ("_buckets", "count", "max_us", "total_us")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total_us = 0
        self.max_us = 0

    def add(self, duration_us: int, times: int = 1) -> None:
        """Adds `times` durations; negative ones count as 0."""
        duration_us = max(0, duration_us)
        bucket = _bucket_of(duration_us)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times
        self.total_us += duration_us * times
        self.max_us = max(self.max_us, duration_us)

    @property
    def mean_us(self) -> float:
        """0 if the histogram is empty."""
        return self.total_us / self.count if self.count else 0.0

    def percentiles_us(self, shares: Sequence[float]) -> list[int]:
        """Percentiles for ascending shares of 1; 0 if the histogram is empty."""
        found: list[int] = []
        wanted = list(shares)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            while len(found) < len(wanted) and seen >= wanted[len(found)] * self.count:
                found.append(min(_top_of(bucket), self.max_us))
        return found + [self.max_us] * (len(wanted) - len(found))


def _bucket_of(duration_us: int) -> int:
    """The bucket's index; ascending with the duration."""
    shift = max(0, duration_us.bit_length() - _PRECISION_BITS)
    return shift * _HALF + (duration_us >> shift)


def _top_of(bucket: int) -> int:
    """Upper bound of a bucket, inclusive."""
    shift = max(0, bucket // _HALF - 1)
    return ((bucket - shift * _HALF + 1) << shift) - 1
