"""Core: measurements of a share consumer, under Kafka's names (KIP-932, KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.client.consumer.meters import PollMeter, Reading
from barnabas.client.sampled import Sampled
from barnabas.client.telemetry.meters import named, sampled
from barnabas.protocol.otlp import Sample

HOUR_SECONDS = 3_600


class _Counted:
    """A sum since the consumer was opened, and its samples of the last windows."""

    def __init__(self) -> None:
        self.total = 0
        self.recent: Sampled = sampled()

    def record(self, value: int, now_ms: int) -> None:
        self.total += value
        self.recent.record(value, now_ms)

    def readings(self, name: str, now_ms: int) -> Iterator[Reading]:
        yield f"{name}-rate", self.recent.rate_of_values(now_ms)
        yield f"{name}-total", self.total


class ShareMeters:
    """One share consumer, through all of its memberships; times in milliseconds."""

    def __init__(self) -> None:
        self.polls = PollMeter()
        """Measured only while a subscription asks for metrics."""
        self._fetched_bytes = _Counted()
        self._given = _Counted()
        self._records_per_request: Sampled = sampled()
        self._fetches = 0
        self._latency: Sampled = sampled()
        self._throttled: Sampled = sampled()
        self._sent = _Counted()
        self._failed = _Counted()
        self._rebalances = _Counted()
        self._heartbeats = _Counted()
        self._heartbeat_time: Sampled = sampled()
        self._heartbeat_sent_ms: int | None = None

    # ---- fetches

    def fetch_answered(self, sent_ms: int, throttle_ms: int, now_ms: int) -> None:
        self._fetches += 1
        self._latency.record(now_ms - sent_ms, now_ms)
        self._throttled.record(throttle_ms, now_ms)

    def fetched(self, size_bytes: int, acquired: int, now_ms: int) -> None:
        """A fetch has brought records: the size of their batches, compressed, and how many offsets were acquired."""
        self._fetched_bytes.record(size_bytes, now_ms)
        self._records_per_request.record(acquired, now_ms)

    def given(self, records: int, now_ms: int) -> None:
        """The application got records."""
        self._given.record(records, now_ms)

    # ---- acknowledgements

    def acknowledgements_sent(self, count: int, now_ms: int) -> None:
        self._sent.record(count, now_ms)

    def acknowledgements_failed(self, count: int, now_ms: int) -> None:
        self._failed.record(count, now_ms)

    # ---- the group

    def rebalanced(self, now_ms: int) -> None:
        self._rebalances.record(1, now_ms)

    def heartbeat_answered(self, sent_ms: int, now_ms: int) -> None:
        self._heartbeats.record(1, now_ms)
        self._heartbeat_time.record(now_ms - sent_ms, now_ms)
        self._heartbeat_sent_ms = sent_ms

    # ---- readings

    def fetch_readings(self, now_ms: int) -> Iterator[Reading]:
        """Kafka's group consumer-share-fetch-manager-metrics."""
        yield "fetch-size-avg", self._fetched_bytes.recent.average(now_ms)
        yield "fetch-size-max", self._fetched_bytes.recent.highest(now_ms)
        yield from self._fetched_bytes.readings("bytes-consumed", now_ms)
        yield "records-per-request-avg", self._records_per_request.average(now_ms)
        yield "records-per-request-max", self._records_per_request.highest(now_ms)
        yield from self._given.readings("records-consumed", now_ms)
        yield from self._sent.readings("acknowledgements-send", now_ms)
        yield from self._failed.readings("acknowledgements-error", now_ms)
        yield "fetch-latency-avg", self._latency.average(now_ms)
        yield "fetch-latency-max", self._latency.highest(now_ms)
        yield "fetch-rate", self._latency.rate(now_ms)
        yield "fetch-total", self._fetches
        yield "fetch-throttle-time-avg", self._throttled.average(now_ms)
        yield "fetch-throttle-time-max", self._throttled.highest(now_ms)

    def group_readings(self, now_ms: int) -> Iterator[Reading]:
        """Kafka's group consumer-share-coordinator-metrics."""
        yield "rebalance-total", self._rebalances.total
        yield "rebalance-rate-per-hour", HOUR_SECONDS * self._rebalances.recent.rate(now_ms)
        yield "heartbeat-response-time-max", self._heartbeat_time.highest(now_ms)
        yield from self._heartbeats.readings("heartbeat", now_ms)
        if self._heartbeat_sent_ms is not None:
            yield "last-heartbeat-seconds-ago", (now_ms - self._heartbeat_sent_ms) / 1000

    def readings(self, now_ms: int) -> dict[str, float]:
        """All but those of polls."""
        return {**dict(self.fetch_readings(now_ms)), **dict(self.group_readings(now_ms))}

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """The metrics of a push, without those of connections."""
        rooms = (
            ("consumer.share", self.polls.readings(now_ms)),
            ("consumer.share.fetch-manager", self.fetch_readings(now_ms)),
            ("consumer.share.coordinator", self.group_readings(now_ms)),
        )
        for room, readings in rooms:
            for name, value in readings:
                yield Sample(named(f"{room}.{name}"), (), value, is_sum=name.endswith("-total"))
