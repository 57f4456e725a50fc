"""Core: metrics of a producer, under Kafka's names.

Averages and maxima cover the last metrics.num.samples windows of metrics.sample.window.ms; totals cover its lifetime.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.producer.buffer_pool import BufferPool
from barnabas.client.producer.producer_batch import FinalState, ProducerBatch
from barnabas.client.sampled import Sampled

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
