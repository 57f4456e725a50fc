"""Core: one metric of a client over the last windows of time, as Kafka samples it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class _Window:
    began_ms: int
    count: int = 0
    total: float = 0.0
    highest: float = 0.0


class Sampled:
    """Average and maximum of one metric over the last windows."""

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, window_ms: int, samples: int) -> None:
        self._window_ms = window_ms
        self._samples = samples
        self._windows: deque[_Window] = deque()

    def record(self, value: float, now_ms: int) -> None:
        windows = self._windows
        if not windows or now_ms - windows[-1].began_ms >= self._window_ms:
            windows.append(_Window(now_ms, 0, 0.0, value))
            if len(windows) > self._samples:
                windows.popleft()
        window = windows[-1]
        window.count += 1
        window.total += value
        if value > window.highest:  # noqa: PLR1730 - a call costs more, and this is for each request
            window.highest = value

    def average(self, now_ms: int) -> float:
        """NaN without recent samples."""
        recent = self._recent(now_ms)
        count = sum(window.count for window in recent)
        return sum(window.total for window in recent) / count if count else float("nan")

    def highest(self, now_ms: int) -> float:
        """NaN without recent samples."""
        return max((window.highest for window in self._recent(now_ms)), default=float("nan"))

    def _recent(self, now_ms: int) -> list[_Window]:
        return [window for window in self._windows if now_ms - window.began_ms < self._window_ms * self._samples]

    def rate(self, now_ms: int) -> float:
        """Samples per second. The time counts as at least all windows but one, so that the first second is no peak."""
        return 1000 * sum(window.count for window in self._recent(now_ms)) / self._elapsed_ms(now_ms)

    def rate_of_values(self, now_ms: int) -> float:
        """Sum of the samples per second; see `rate`."""
        return 1000 * sum(window.total for window in self._recent(now_ms)) / self._elapsed_ms(now_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        recent = self._recent(now_ms)
        least_ms = self._window_ms * max(1, self._samples - 1)
        return max(now_ms - recent[0].began_ms if recent else 0, least_ms)
