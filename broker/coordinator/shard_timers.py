"""Shell: the timers of one machine, on the broker's timing wheel."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from barnabas.broker.coordinator.outcome import Operation
from barnabas.broker.timing_wheel import TimerEntry, TimingWheel


class ShardTimers:
    """Implements `broker.coordinator.outcome.Timers`."""

    def __init__(self, wheel: TimingWheel) -> None:
        self.wheel = wheel
        self._entries: dict[Hashable, TimerEntry] = {}
        self._deadlines: dict[Hashable, int] = {}
        self.shard: Any = None
        """The `Shard`, while it is in use. Set after construction, because the shard's machine needs the timers."""

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        self.cancel(key)

        def fire() -> None:
            del self._entries[key], self._deadlines[key]
            if self.shard is not None:
                self.shard.run_timer(key, operation)

        self._deadlines[key] = deadline_ms
        self._entries[key] = self.wheel.add(deadline_ms, fire)

    def cancel(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._deadlines[key]
            entry.cancel()

    def deadline_ms(self, key: Hashable) -> int | None:
        return self._deadlines.get(key)

    def cancel_all(self) -> None:
        for entry in self._entries.values():
            entry.cancel()
        self._entries.clear()
        self._deadlines.clear()
