"""Core: measurements of a client that only the push of its metrics needs (KIP-714).

They cost nothing while nobody asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.client.sampled import Sampled
from barnabas.protocol.otlp import Sample

WINDOW_MS = 30_000
WINDOWS = 2
MAX_NODES = 1_000
"""Latencies of further nodes are not measured."""


def sampled() -> Sampled:
    return Sampled(WINDOW_MS, WINDOWS)


def named(name: str) -> str:
    """Kafka's name in pushes: `org.apache.kafka.consumer.poll.idle.ratio.avg` of `consumer.poll-idle-ratio-avg`."""
    return f"org.apache.kafka.{name.replace('-', '.')}"


class ClientMeters:
    """Measurements of the connections of one client."""

    def __init__(self) -> None:
        self.is_measuring = False
        """Whether a subscription asks for metrics."""
        self.connections = 0
        """Connections that were established, ever."""
        self._creations = sampled()
        self._latencies: dict[int, Sampled] = {}

    def connected(self, now_ms: int) -> None:
        self.connections += 1
        self._creations.record(1, now_ms)

    def answered(self, node_id: int, latency_ms: int, now_ms: int) -> None:
        """A node responded. Bootstrap servers have negative ids, as in Kafka."""
        latency = self._latencies.get(node_id)
        if latency is None:
            if len(self._latencies) >= MAX_NODES:
                return
            latency = self._latencies[node_id] = sampled()
        latency.record(latency_ms, now_ms)

    def samples(self, client: str, now_ms: int) -> Iterator[Sample]:
        """`client` is `producer`, `consumer` or `admin.client`."""
        yield Sample(named(f"{client}.connection-creation-rate"), (), self._creations.rate(now_ms))
        yield Sample(named(f"{client}.connection-creation-total"), (), self.connections, is_sum=True)
        for node_id, latency in self._latencies.items():
            attributes = (("node_id", f"node-{node_id}"),)
            yield Sample(named(f"{client}.node-request-latency-avg"), attributes, latency.average(now_ms))
            yield Sample(named(f"{client}.node-request-latency-max"), attributes, latency.highest(now_ms))
