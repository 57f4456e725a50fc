"""Metrics of delayed delivery. Kafka has no such thing."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.delayed.deliveries import DelayedDeliveries
from barnabas.runtime.families import Family


def delayed_families(deliveries: DelayedDeliveries) -> Iterator[Family]:
    labels = ("topic", "partition")
    samples = [((led.partition.topic, str(led.partition.index)), len(led.pending)) for led in deliveries]
    yield Family("gauge", "barnabas_delayed_pending_records", "Records that are not delivered yet.", labels, samples)
    lateness = deliveries.events.lateness
    text = "Milliseconds from when records were due until they were appended."
    yield Family.of("histogram", "barnabas_delayed_lateness_ms", text, lateness)
