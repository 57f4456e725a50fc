"""Core: timers of groups. Those of a frozen group, which must not change it, wait until it may change again."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from barnabas.broker.coordinator.outcome import Now, Operation, Outcome, Timers
from barnabas.broker.groups.group import GroupDirectory

FROZEN_WAIT_MS = 1_000
"""Delay of a timer that is due while its group is frozen."""


class GroupTimers:
    """Implements `broker.coordinator.outcome.Timers`. The second part of a key is the id of the group."""

    def __init__(self, timers: Timers, groups: GroupDirectory) -> None:
        self._timers = timers
        self._groups = groups

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        self._timers.schedule(key, deadline_ms, partial(self._due, key, operation))

    def cancel(self, key: Hashable) -> None:
        self._timers.cancel(key)

    def deadline_ms(self, key: Hashable) -> int | None:
        return self._timers.deadline_ms(key)

    def _due(self, key: Hashable, operation: Operation, now: Now) -> Outcome:
        if isinstance(key, tuple) and len(key) > 1 and self._groups.is_frozen(key[1]):
            self.schedule(key, now.monotonic_ms + FROZEN_WAIT_MS, operation)
            return Outcome()
        return operation(now)
