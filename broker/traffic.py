"""Core: what a broker counts as it happens, so that its metrics can tell it. Plain numbers, that only grow."""

from __future__ import annotations

from collections.abc import Callable

from runtime.request_times import Spread


class PartitionTraffic:
    """Of one partition while it is here."""

    __slots__ = ("bytes_in", "isr_expands", "isr_shrinks", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        """Records that were appended by this broker as the leader."""
        self.bytes_in = 0
        self.isr_shrinks = 0
        """Changes of the ISR while this broker led."""
        self.isr_expands = 0

    def isr_changed(self, before: int, now: int) -> None:
        """How many are in sync, before and after."""
        self.isr_shrinks += now < before
        self.isr_expands += now > before


class BytesOut:
    """Of one broker."""

    __slots__ = ("to_consumers", "to_followers")

    def __init__(self) -> None:
        self.to_consumers = 0
        self.to_followers = 0


class GroupEvents:
    """What happened to the groups that are coordinated here."""

    __slots__ = ("commits", "consumer_rebalances", "deleted", "expired", "rebalances")

    def __init__(self) -> None:
        self.commits = 0
        """Offsets, of a partition each. So for the next two."""
        self.deleted = 0
        self.expired = 0
        self.rebalances = 0
        """Of classic groups, that were completed."""
        self.consumer_rebalances = 0
        """Target assignments of groups of the newer protocol."""


class Verifications:
    """Questions of this broker to coordinators whether partitions are in transactions (KIP-890)."""

    __slots__ = ("failures", "spread")

    def __init__(self) -> None:
        self.failures = 0
        """Partitions that were not, or of which nobody said it."""
        self.spread = Spread()
        """How long the answers took."""


class CleanerWork:
    """What compaction did since the broker started."""

    __slots__ = ("bytes_after", "bytes_before", "cleanings", "failures", "map_utilization", "seconds")

    def __init__(self) -> None:
        self.cleanings = 0
        self.failures = 0
        self.bytes_before = 0
        """Of the segments that were cleaned."""
        self.bytes_after = 0
        self.seconds = 0.0
        self.map_utilization = 0.0
        """How full the map of keys was at last, 1 being full."""


class Conversions:
    """Batches that were written in another compression than they came in, because their topic has one of its own."""

    __slots__ = ("records", "spread", "stopwatch")

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self.records = 0
        self.spread = Spread()
        self.stopwatch = stopwatch
