"""What a broker counts as it happens, so that its metrics can tell it. Plain numbers, that only grow."""

from __future__ import annotations


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
