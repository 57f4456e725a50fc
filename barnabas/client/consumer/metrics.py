"""Metrics of a consumer, under Kafka's names, as far as Kafka has them."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.client.consumer.consumer_coordinator import ConsumerCoordinator
from barnabas.client.consumer.meters import PollMeter
from barnabas.client.consumer.partition_reader import PartitionReader
from barnabas.client.telemetry.meters import named
from barnabas.protocol.otlp import Sample

OF_COORDINATOR = frozenset(
    (
        "assigned-partitions",
        "commit-total",
        "rebalance-total",
        "heartbeat-total",
        "last-heartbeat-seconds-ago",
    )
)
"""Metrics in Kafka's group consumer-coordinator-metrics; the others are in consumer-fetch-manager-metrics."""


def consumer_metrics(reader: PartitionReader, group: ConsumerCoordinator | None) -> dict[str, float]:
    """Totals count since the consumer was opened; those of its group are left out without one."""
    fetches = reader.fetch_metrics
    lags = [lag for partition in reader.assigned if (lag := reader.lag(partition)) is not None]
    metrics: dict[str, float] = {
        "records-consumed-total": reader.records_given,
        "bytes-consumed-total": fetches.bytes,
        "fetch-total": fetches.fetches,
        "fetch-latency-avg": fetches.latency_ms / fetches.fetches if fetches.fetches else 0.0,
        "fetch-latency-max": fetches.latency_max_ms,
        "fetch-throttle-time-total": fetches.throttle_ms,
        "assigned-partitions": len(reader.assigned),
        "records-lag-max": max(lags, default=0),
    }
    if group is not None:
        metrics["commit-total"] = group.commits
        if group.participant is not None:
            metrics["rebalance-total"] = group.participant.rebalances
            metrics["heartbeat-total"] = group.participant.heartbeats
            metrics["last-heartbeat-seconds-ago"] = group.participant.unheard_ms() / 1000
    return metrics


def consumer_samples(
    reader: PartitionReader, group: ConsumerCoordinator | None, polls: PollMeter, now_ms: int
) -> Iterator[Sample]:
    """The metrics of a push (KIP-714), without those of connections."""
    for name, value in polls.readings(now_ms):
        yield Sample(named(f"consumer.{name}"), (), value)
    for name, value in consumer_metrics(reader, group).items():
        room = "coordinator" if name in OF_COORDINATOR else "fetch-manager"
        yield Sample(named(f"consumer.{room}.{name}"), (), value, is_sum=name.endswith("-total"))
    for name, value in () if group is None else group.meters.readings(now_ms):
        yield Sample(named(f"consumer.coordinator.{name}"), (), value, is_sum=name.endswith("-total"))
