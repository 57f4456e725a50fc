"""The clocks of a simulated host: each runs at its own rate from its own start, over the time of the
universe."""

from __future__ import annotations

from runtime.simulated.virtual_time import VirtualTime


class SimulatedClock:
    """Universe time, times a rate, plus an offset; in whole milliseconds."""

    __slots__ = ("_base_ms", "_base_seconds", "_time", "rate_ppm")

    def __init__(self, time: VirtualTime, start_ms: float, rate_ppm: float) -> None:
        """`rate_ppm`: how many millionths faster than the universe it runs."""
        self._time = time
        self._base_ms = start_ms
        self._base_seconds = 0.0
        self.rate_ppm = rate_ppm

    def now_ms(self) -> int:
        return int(self._exact_ms())

    def seconds(self) -> float:
        """A stopwatch."""
        return self._exact_ms() / 1000

    def jump(self, by_ms: float) -> None:
        """Set the clock: only wall clocks do that."""
        self._rebase()
        self._base_ms += by_ms

    def set_rate(self, rate_ppm: float) -> None:
        """Run faster or slower from now on."""
        self._rebase()
        self.rate_ppm = rate_ppm

    def _exact_ms(self) -> float:
        elapsed = self._time.now - self._base_seconds
        return self._base_ms + elapsed * 1000.0 * (1.0 + self.rate_ppm / 1e6)

    def _rebase(self) -> None:
        self._base_ms = self._exact_ms()
        self._base_seconds = self._time.now
