"""The clocks of a simulated host: each runs at its own rate from its own start, on top of the time of the universe."""

from __future__ import annotations

from barnabas.runtime.simulated.virtual_time import VirtualTime


class SimulatedClock:
    """Universe time, times a rate, plus an offset; in whole milliseconds."""

    __slots__ = ("_asked_at", "_base_ms", "_base_seconds", "_now_ms", "_rate", "_time", "rate_ppm")

    def __init__(self, time: VirtualTime, start_ms: float, rate_ppm: float) -> None:
        """`rate_ppm`: millionths by which it runs faster than the universe."""
        self._time = time
        self._base_ms = start_ms
        self._base_seconds = 0.0
        self._asked_at = -1.0
        """Time of the universe at which `_now_ms` was computed: a moment is read many times, and computed once."""
        self._now_ms = 0
        self._set_rate(rate_ppm)

    def now_ms(self) -> int:
        if self._asked_at != self._time.now:
            self._now_ms = int(self._exact_ms())
            self._asked_at = self._time.now
        return self._now_ms

    def seconds(self) -> float:
        """A stopwatch."""
        return self._exact_ms() / 1000

    def jump(self, by_ms: float) -> None:
        """Set the clock: only wall clocks do that."""
        self._rebase()
        self._base_ms += by_ms
        self._asked_at = -1.0

    def set_rate(self, rate_ppm: float) -> None:
        """Run faster or slower from now on."""
        self._rebase()
        self._set_rate(rate_ppm)

    def _set_rate(self, rate_ppm: float) -> None:
        self.rate_ppm = rate_ppm
        self._rate = 1000.0 * (1.0 + rate_ppm / 1e6)
        """Milliseconds in a second of the universe."""

    def _exact_ms(self) -> float:
        return self._base_ms + (self._time.now - self._base_seconds) * self._rate

    def _rebase(self) -> None:
        self._base_ms = self._exact_ms()
        self._base_seconds = self._time.now
