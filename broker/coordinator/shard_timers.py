"""Shell: the timers of one machine, on the broker's timing wheel."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from barnabas.broker.coordinator.outcome import Operation
from barnabas.broker.timing_wheel import TimerEntry, TimingWheel


class ShardTimers:
    """Implements `broker.coordinator.outcome.Timers`."""

    shard: Any
    """The `Shard`, set after construction, because its machine needs the timers. One that is given up ignores them."""

    def __init__(self, wheel: TimingWheel) -> None:
        self.wheel = wheel
        self._entries: dict[Hashable, TimerEntry] = {}

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        self.cancel(key)

        def fire() -> None:
            del self._entries[key]
            self.shard.run_timer(key, operation)

        self._entries[key] = self.wheel.add(deadline_ms, fire)

    def cancel(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.cancel()

    def deadline_ms(self, key: Hashable) -> int | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.deadline_ms

    def cancel_all(self) -> None:
        for key in list(self._entries):
            self.cancel(key)
