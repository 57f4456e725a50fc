"""Core: rate limits of replication (KIP-73): of what leaders send, of what followers fetch, of copies between log
directories.

A limit is exceeded while the rate over the last samples is above it. What is in sync is never limited: a limit must not
cost a replica its place in the ISR. All of Kafka's arithmetic: samples of `window_ms`, and a rate over at least one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from barnabas.runtime.quotas.rate import QuotaWindows

EVERY_PARTITION = "*"


class ReplicationQuota:
    """One limit of one broker. `limit`: bytes per second, as it holds now."""

    __slots__ = ("_limit", "_samples", "_windows")

    def __init__(self, windows: QuotaWindows, limit: Callable[[], int]) -> None:
        self._windows = windows
        self._limit = limit
        self._samples: deque[tuple[int, int]] = deque()
        """(begin, bytes) of each sample, oldest first."""

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count bytes that were sent, fetched or copied."""
        samples, windows = self._samples, self._windows
        if samples and now_ms - samples[-1][0] < windows.window_ms:
            samples[-1] = (samples[-1][0], samples[-1][1] + size_bytes)
        else:
            samples.append((now_ms, size_bytes))
            if len(samples) > windows.samples:
                samples.popleft()

    def rate(self, now_ms: int) -> float:
        """Bytes per second over the samples that count."""
        samples, windows = self._samples, self._windows
        while samples and now_ms - samples[0][0] >= windows.samples * windows.window_ms:
            samples.popleft()
        if not samples:
            return 0.0
        elapsed_ms = max(now_ms - samples[0][0], windows.window_ms)
        return sum(size for _, size in samples) * 1000 / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        return bool(self._samples) and self.rate(now_ms) > self._limit()


class ThrottledReplicas:
    """Partitions whose replication is limited: the topic configs `leader.replication.throttled.replicas` and
    `follower.replication.throttled.replicas` of one broker."""

    __slots__ = ("topics",)

    def __init__(self) -> None:
        self.topics: dict[str, frozenset[int] | None] = {}
        """Partitions by topic; None: all of them. Read-only."""

    def set(self, topic: str, entries: Sequence[str], broker_id: int) -> None:
        """`entries`: `partition:broker` or `*`; `none` of Kafka's older tools is an empty list."""
        if EVERY_PARTITION in entries:
            self.topics[topic] = None
            return
        pairs = [each.partition(":") for each in entries]
        own = frozenset(int(index) for index, _, broker in pairs if broker == str(broker_id))
        if own:
            self.topics[topic] = own
        else:
            self.topics.pop(topic, None)

    def keep(self, topics: Mapping[str, object]) -> None:
        """Forget topics that do not exist."""
        for topic in [each for each in self.topics if each not in topics]:
            del self.topics[topic]

    def __bool__(self) -> bool:
        return bool(self.topics)

    def __contains__(self, key: tuple[str, int]) -> bool:
        topic, index = key
        if topic not in self.topics:
            return False
        known = self.topics[topic]
        return known is None or index in known
