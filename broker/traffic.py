"""Core: counters of a broker's work, for its metrics. Plain numbers that only grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.runtime.request_times import Spread
from barnabas.storage.cleaning import Backlog


class PartitionTraffic:
    """Counters of one partition while it is on this broker."""

    __slots__ = ("bytes_in", "isr_expands", "isr_shrinks", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        """Records appended while this broker led."""
        self.bytes_in = 0
        self.isr_shrinks = 0
        """Changes of the ISR while this broker led."""
        self.isr_expands = 0

    def isr_changed(self, before: int, now: int) -> None:
        """`before`, `now`: number of in-sync replicas."""
        self.isr_shrinks += now < before
        self.isr_expands += now > before


class BytesOut:
    """Bytes of records in fetch responses."""

    __slots__ = ("to_consumers", "to_followers")

    def __init__(self) -> None:
        self.to_consumers = 0
        self.to_followers = 0


class GroupEvents:
    """Events in the groups that this broker coordinates."""

    __slots__ = (
        "commits",
        "consumer_rebalances",
        "deleted",
        "expired",
        "rebalances",
        "share_rebalances",
        "streams_rebalances",
    )

    def __init__(self) -> None:
        self.commits = 0
        """Committed offsets, counted for each partition, as the next two."""
        self.deleted = 0
        self.expired = 0
        self.rebalances = 0
        """Completed rebalances of classic groups."""
        self.consumer_rebalances = 0
        """New target assignments of groups of the consumer protocol."""
        self.share_rebalances = 0
        """New target assignments of share groups."""
        self.streams_rebalances = 0
        """New epochs of streams groups, as Kafka counts them."""


class ShareStateWrites:
    """WriteShareGroupState at this broker's share coordinator."""

    __slots__ = ("count", "spread", "stopwatch")

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self.count = 0
        """Written states, one for each share partition of a request."""
        self.spread = Spread()
        """Times of requests until everything was replicated."""
        self.stopwatch = stopwatch


class ShareGroupEvents:
    """Events in the share partitions that this broker leads."""

    __slots__ = ("acknowledged", "dead_letter_failures", "dead_letters", "loads")

    def __init__(self) -> None:
        self.dead_letters = 0
        """Records that were copied to dead-letter topics."""
        self.dead_letter_failures = 0
        """Failed attempts to copy some."""
        self.acknowledged: Counter[AcknowledgeType] = Counter()
        """Records by type of acknowledgement."""
        self.loads = Spread()
        """Times until the state of a share partition was read."""


class DelayedEvents:
    """Deliveries of delayed records by this broker."""

    __slots__ = ("lateness",)

    def __init__(self) -> None:
        self.lateness = Spread()
        """Times from when records were due until they were appended."""

    def delivered(self, now_ms: int, times_ms: Iterable[int]) -> None:
        took = self.lateness.took
        for time_ms in times_ms:
            took(max(now_ms - time_ms, 0) / 1000)


class Verifications:
    """Verifications by this broker that partitions are in transactions (KIP-890)."""

    __slots__ = ("failures", "spread")

    def __init__(self) -> None:
        self.failures = 0
        """Partitions that were not, or could not be verified."""
        self.spread = Spread()
        """Times until the coordinator answered."""


class CleanerWork:
    """Compaction since the broker started."""

    __slots__ = (
        "backlog",
        "bytes_after",
        "bytes_before",
        "cleanings",
        "failures",
        "last_recopied",
        "last_seconds",
        "map_utilization",
        "seconds",
    )

    def __init__(self) -> None:
        self.cleanings = 0
        self.failures = 0
        self.bytes_before = 0
        """Bytes of segments before they were cleaned."""
        self.bytes_after = 0
        self.seconds = 0.0
        self.map_utilization = 0.0
        """Fill level of the map of keys in the last cleaning, in percent."""
        self.last_seconds = 0.0
        """Duration of the last cleaning."""
        self.last_recopied = 0.0
        """Bytes that the last cleaning kept, in percent."""
        self.backlog = Backlog()
        """Result of the last search for a log to clean."""


class Conversions:
    """Batches that were recompressed because the topic's compression.type differs from the producer's."""

    __slots__ = ("records", "spread", "stopwatch")

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self.records = 0
        self.spread = Spread()
        self.stopwatch = stopwatch
