"""Core: result of a measurement: records, bytes, elapsed time, CPU time and latencies.

Times are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.cli.percentiles import Histogram

MIB = 1024 * 1024


@dataclass(slots=True)
class Throughput:
    """Counts records in total and in the current window."""

    began_us: int
    interval_us: int
    """Window length; 0 for no windows."""
    records: int = 0
    size_bytes: int = 0
    durations: Histogram = field(default_factory=Histogram)
    """Latencies of all records, if measured."""
    _window_began_us: int = 0
    _window_records: int = 0
    _window_bytes: int = 0
    _window_durations: Histogram = field(default_factory=Histogram)

    def __post_init__(self) -> None:
        self._window_began_us = self.began_us

    def add(self, records: int, size_bytes: int, duration_us: int | None = None) -> None:
        """Adds records that took `duration_us` each."""
        self.records += records
        self.size_bytes += size_bytes
        self._window_records += records
        self._window_bytes += size_bytes
        if duration_us is not None:
            self.durations.add(duration_us, records)
            self._window_durations.add(duration_us, records)

    def window(self, now_us: int) -> str | None:
        """A line about the window if it has ended, which starts the next one."""
        elapsed_us = now_us - self._window_began_us
        if not self.interval_us or elapsed_us < self.interval_us or not self._window_records:
            return None
        line = _rates(self._window_records, self._window_bytes, elapsed_us)
        if self._window_durations.count:
            durations = self._window_durations
            line += f", {durations.mean_us / 1000:.1f} ms mean, {durations.max_us / 1000:.1f} ms at most"
        self._window_began_us = now_us
        self._window_records = self._window_bytes = 0
        self._window_durations = Histogram()
        return line


@dataclass(frozen=True, slots=True)
class Result:
    """A completed measurement."""

    records: int
    size_bytes: int
    elapsed_us: int
    cpu_us: int
    """CPU time of this process."""
    durations: dict[str, Histogram]
    """Latency histograms by name."""
    shares: Sequence[float]
    """Percentiles to report, as shares of 1."""
    more: dict[str, float] = field(default_factory=dict)
    """Other times in milliseconds, by name."""

    def lines(self) -> list[str]:
        """The report as text."""
        cpu = f"{self._cpu_seconds_per_million():.2f} CPU seconds for a million" if self.records else "no CPU time"
        lines = [_rates(self.records, self.size_bytes, self.elapsed_us) + f", {self.elapsed_us / 1e6:.2f} s, {cpu}"]
        lines += [f"{name}: {value:.1f} ms" for name, value in self.more.items()]
        for name, durations in self.durations.items():
            found = zip(self.shares, durations.percentiles_us(self.shares), strict=True)
            shares = ", ".join(f"p{share_name(share)} {value / 1000:.2f}" for share, value in found)
            mean, most = durations.mean_us / 1000, durations.max_us / 1000
            lines.append(f"{name} (ms): mean {mean:.2f}, {shares}, max {most:.2f}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The report as JSON; names contain the units."""
        seconds = self.elapsed_us / 1e6
        return {
            "records": self.records,
            "bytes": self.size_bytes,
            "seconds": round(seconds, 6),
            "records_per_second": round(_rate(self.records, seconds), 1),
            "mib_per_second": round(_rate(self.size_bytes / MIB, seconds), 3),
            "cpu_seconds": round(self.cpu_us / 1e6, 3),
            "cpu_seconds_per_million_records": round(self._cpu_seconds_per_million(), 3),
            **{f"{name.replace(' ', '_')}_ms": round(value, 3) for name, value in self.more.items()},
            **{
                f"{name.replace(' ', '_')}_ms": self._durations_json(durations)
                for name, durations in self.durations.items()
            },
        }

    def _durations_json(self, durations: Histogram) -> dict[str, float]:
        found = zip(self.shares, durations.percentiles_us(self.shares), strict=True)
        return {
            "mean": round(durations.mean_us / 1000, 3),
            **{f"p{share_name(share)}": value / 1000 for share, value in found},
            "max": durations.max_us / 1000,
        }

    def _cpu_seconds_per_million(self) -> float:
        return self.cpu_us / self.records if self.records else 0.0


def share_name(share: float) -> str:
    """`50` for 0.5, `99.9` for 0.999."""
    return f"{share * 100:.10g}"


def _rates(records: int, size_bytes: int, elapsed_us: int) -> str:
    seconds = elapsed_us / 1e6
    return f"{records} records, {_rate(records, seconds):,.0f}/s, {_rate(size_bytes / MIB, seconds):.2f} MiB/s"


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
