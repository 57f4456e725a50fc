"""Core: measurements of a consumer that the push of its metrics needs (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.client.telemetry.meters import sampled

Reading = tuple[str, float]
"""Kafka's name, and milliseconds, a ratio or a total."""


class GroupMeters:
    """The dealings of a consumer with its group; milliseconds."""

    def __init__(self) -> None:
        self.commit = sampled()
        self._rebalance = sampled()
        self._rebalanced_ms = 0
        self._began_ms: int | None = None

    def rebalance_goes_on(self, now_ms: int) -> None:
        """The application is given, or loses, partitions; it lasts until it was given some."""
        if self._began_ms is None:
            self._began_ms = now_ms

    def rebalance_ended(self, now_ms: int) -> None:
        if self._began_ms is not None:
            self._rebalance.record(now_ms - self._began_ms, now_ms)
            self._rebalanced_ms += now_ms - self._began_ms
            self._began_ms = None

    def readings(self, now_ms: int) -> Iterator[Reading]:
        yield "commit-latency-avg", self.commit.average(now_ms)
        yield "commit-latency-max", self.commit.highest(now_ms)
        yield "rebalance-latency-avg", self._rebalance.average(now_ms)
        yield "rebalance-latency-max", self._rebalance.highest(now_ms)
        yield "rebalance-latency-total", self._rebalanced_ms


class PollMeter:
    """How often the application polls, and the part of its time that it spends in `poll`, not processing records."""

    def __init__(self) -> None:
        self._ratio = sampled()
        self._between = sampled()
        self._began_ms: int | None = None
        self._ended_ms: int | None = None

    def polled(self, began_ms: int, now_ms: int) -> None:
        """A poll has ended."""
        if self._began_ms is not None:
            self._between.record(began_ms - self._began_ms, now_ms)
        self._began_ms = began_ms
        ended_ms, self._ended_ms = self._ended_ms, now_ms
        if ended_ms is not None and now_ms > ended_ms:
            self._ratio.record((now_ms - began_ms) / (now_ms - ended_ms), now_ms)

    def readings(self, now_ms: int) -> Iterator[Reading]:
        yield "poll-idle-ratio-avg", self._ratio.average(now_ms)
        yield "time-between-poll-avg", self._between.average(now_ms)
        yield "time-between-poll-max", self._between.highest(now_ms)
        if self._began_ms is not None:
            yield "last-poll-seconds-ago", (now_ms - self._began_ms) / 1000
