"""Metrics of a consumer, under Kafka's names, as far as Kafka has them."""

from __future__ import annotations

from barnabas.client.consumer.consumer_coordinator import ConsumerCoordinator
from barnabas.client.consumer.partition_reader import PartitionReader


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
