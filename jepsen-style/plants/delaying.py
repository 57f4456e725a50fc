"""Mistakes of delayed delivery."""

from __future__ import annotations

from typing import Any

from barnabas.broker.delayed.replay import Replay, SegmentScan
from barnabas.broker.delayed.schedule import Schedule

EARLY_MS = 900


def deliver_early(original: Any) -> Any:
    """Records are due before their time."""

    def add(self: Schedule, time_ms: int, arrival_offset: int) -> None:
        original(self, max(0, time_ms - EARLY_MS), arrival_offset)

    return add


def deliver_again(original: Any) -> Any:
    """A new leader delivers what its predecessor has delivered."""

    def add(self: Replay, scan: SegmentScan) -> None:
        scan.settled.clear()
        scan.open = None
        original(self, scan)

    return add


def forget_what_is_pending(_original: Any) -> Any:
    """A new leader does not read what waits in its log."""

    def add(self: Replay, scan: SegmentScan) -> None:
        return None

    return add
