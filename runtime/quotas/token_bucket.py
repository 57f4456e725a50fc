"""Core: the token bucket of a quota (KIP-599): it fills with `quota` tokens a second, up to a burst.

It may go below zero: an operation that finds any token is done whole. The burst is the quota of all windows together.
"""

from __future__ import annotations

from barnabas.runtime.quotas.rate import QuotaWindows, rounded_ms


class TokenBucket:
    """The tokens of one client. Times are milliseconds on the monotonic clock."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        """None: full."""
        self._updated_ms = 0

    def record(self, amount: float, quota: float, now_ms: int) -> None:
        """Take tokens; a negative amount gives them back."""
        left = self.tokens(quota, now_ms) - amount
        self._tokens = min(self.burst(quota), left)

    def tokens(self, quota: float, now_ms: int) -> float:
        """The tokens that are there now."""
        burst = self.burst(quota)
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + quota * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def burst(self, quota: float) -> float:
        return self._windows.samples * self._windows.window_ms / 1000 * quota

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """The time until there are zero tokens again; 0 if there are."""
        tokens = self.tokens(quota, now_ms)
        return rounded_ms(-tokens / quota * 1000) if tokens < 0 else 0
