"""The CPU of Spark: of the driver, the JVM, and Python workers that come and go."""

from __future__ import annotations

import os
from collections.abc import Iterable

from measuring import Meter, stat_of, with_descendants

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class SparkMeter(Meter):
    """Counts the workers that Spark ended, too. Their CPU is counted by the process that waited for them, or, if
    that ended with them, by their last sample.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        super().__init__(pids)
        self._seen: dict[int, tuple[float, float]] = {}
        self._unclaimed_s = 0.0

    def _readings(self) -> tuple[float, ...]:
        wall, server, client, *rest = super()._readings()
        seen = {pid: _cpu_and_ended_s(pid) for pid in with_descendants([os.getpid()])}
        gone = sum(sum(times) for pid, times in self._seen.items() if pid not in seen)
        claimed = sum(ended - self._seen[pid][1] for pid, (_, ended) in seen.items() if pid in self._seen)
        self._unclaimed_s += max(0.0, gone - claimed)
        self._seen = seen
        ended = sum(times[1] for pid, times in seen.items() if pid != os.getpid())
        return wall, server, client + ended + self._unclaimed_s, *rest


def _cpu_and_ended_s(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of the children that it waited for."""
    fields = [int(word) for word in stat_of(pid)[11:15]]
    return sum(fields[:2]) / _TICKS_PER_S, sum(fields[2:]) / _TICKS_PER_S
