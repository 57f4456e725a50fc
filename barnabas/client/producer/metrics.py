"""Core: metrics of a producer, under Kafka's names.

Averages and maxima cover the last metrics.num.samples windows of metrics.sample.window.ms; totals cover its lifetime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.producer.buffer_pool import BufferPool
from barnabas.client.producer.producer_batch import FinalState, ProducerBatch


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


SAMPLED = (
    "batch-size",
    "compression-rate",
    "produce-throttle-time",
    "record-queue-time",
    "records-per-request",
    "request-latency",
    "bufferpool-wait-time",
)
TOTALS = (
    "batch-split-total",
    "buffer-exhausted-total",
    "record-error-total",
    "record-retry-total",
    "record-send-total",
    "request-total",
)


class ProducerMetrics:
    """Metrics of one producer; bytes, milliseconds, counts."""

    def __init__(self, window_ms: int, samples: int) -> None:
        self._sampled = {name: Sampled(window_ms, samples) for name in SAMPLED}
        self._totals = dict.fromkeys(TOTALS, 0)

    def count(self, name: str, how_many: int = 1) -> None:
        """`name` is one of TOTALS."""
        self._totals[name] += how_many

    def measure(self, name: str, value: float, now_ms: int) -> None:
        """`name` is one of SAMPLED."""
        self._sampled[name].record(value, now_ms)

    def drained(self, batches: list[ProducerBatch], now_ms: int) -> None:
        """Count the batches of one request that is about to be sent."""
        records = 0
        for batch in batches:
            records += batch.record_count
            self.measure("batch-size", batch.size_bytes, now_ms)
            self.measure("compression-rate", batch.compression_ratio, now_ms)
            if batch.attempts == 1:
                self.measure("record-queue-time", now_ms - batch.created_ms, now_ms)
            else:
                self.count("record-retry-total", batch.record_count)
        self.count("request-total")
        self.measure("records-per-request", records, now_ms)

    def decided(self, batch: ProducerBatch) -> None:
        """Count a batch that has ended."""
        succeeded = batch.final_state is FinalState.SUCCEEDED
        self.count("record-send-total" if succeeded else "record-error-total", batch.record_count)

    def snapshot(self, pool: BufferPool, requests_in_flight: int, now_ms: int) -> Mapping[str, float]:
        metrics: dict[str, float] = dict(self._totals)
        for name, sampled in self._sampled.items():
            metrics[f"{name}-avg"] = sampled.average(now_ms)
            metrics[f"{name}-max"] = sampled.highest(now_ms)
        metrics["buffer-total-bytes"] = pool.total_bytes
        metrics["buffer-available-bytes"] = pool.available_bytes
        metrics["waiting-threads"] = pool.queued
        metrics["requests-in-flight"] = requests_in_flight
        return metrics
