"""The machine's clocks in whole milliseconds. Knows no node and no skew."""

from __future__ import annotations

import time


class WallClock:
    """Milliseconds since the Unix epoch; may jump when the machine's time is set."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class MonotonicClock:
    """Milliseconds since some fixed point; never goes back."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
