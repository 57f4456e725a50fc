"""Core: exponential backoff, with jitter (KIP-580) where many clients would retry together. Never waits itself."""

from __future__ import annotations

from barnabas.runtime.world import Chance

MOST_DOUBLINGS = 20


def doubled_ms(first_ms: int, max_ms: int, failures: int) -> int:
    """Time to wait after `failures` earlier failures and one more."""
    return min(first_ms << min(failures, MOST_DOUBLINGS), max_ms)


class Backoff:
    """Exponential backoff; with `chance` its times vary by `jitter`."""

    __slots__ = ("_chance", "_first_ms", "_jitter", "_max_ms", "failures")

    def __init__(self, first_ms: int, max_ms: int, chance: Chance | None = None, jitter: float = 0.2) -> None:
        self._jitter = jitter
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._chance = chance
        self.failures = 0
        """Failures in a row."""

    def next_ms(self) -> int:
        """Time to wait after one more failure."""
        wait_ms = doubled_ms(self._first_ms, self._max_ms, self.failures)
        self.failures += 1
        return wait_ms if self._chance is None else int(wait_ms * self._factor(self._chance))

    def _factor(self, chance: Chance) -> float:
        return 1 - self._jitter + 2 * self._jitter * chance.random()

    def reset(self) -> None:
        self.failures = 0
