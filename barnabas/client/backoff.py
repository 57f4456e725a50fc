"""Core: exponential backoff with jitter (KIP-580). Computes waits and never waits itself."""

from __future__ import annotations

from barnabas.runtime.world import Chance

MOST_DOUBLINGS = 20


class Backoff:
    """Exponential backoff with 20 % jitter."""

    __slots__ = ("_chance", "_first_ms", "_max_ms", "failures")

    def __init__(self, first_ms: int, max_ms: int, chance: Chance) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._chance = chance
        self.failures = 0
        """Failures in a row."""

    def next_ms(self) -> int:
        """Time to wait after one more failure."""
        wait_ms = self._first_ms * 2 ** min(self.failures, MOST_DOUBLINGS)
        self.failures += 1
        return int(min(wait_ms, self._max_ms) * (0.8 + 0.4 * self._chance.random()))

    def reset(self) -> None:
        self.failures = 0
