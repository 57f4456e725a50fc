"""Core: when a client gets its next bearer token: before the old one expires, as Kafka's login does."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.sasl.oauthbearer import BearerToken
from barnabas.runtime.world import Chance

RETRY_MS = 10_000
"""Wait after a token could not be had, as long as the old one is valid."""


@dataclass(frozen=True, slots=True)
class RefreshRules:
    """`sasl.login.refresh.…`"""

    window_factor: float = 0.8
    """The part of a token's lifetime after which the next one is fetched."""
    window_jitter: float = 0.05
    """At most so much is added to the factor, by chance."""
    min_period_seconds: int = 60
    buffer_seconds: int = 300
    """Time to leave before the end. Both are ignored if they are longer than the token's lifetime."""


def refresh_ms(token: BearerToken, now_ms: int, rules: RefreshRules, chance: Chance) -> int | None:
    """The wall-clock time to fetch the token that follows `token`, which came at `now_ms`. None: it does not expire."""
    expires_ms = token.expires_ms
    if expires_ms is None:
        return None
    if now_ms > expires_ms:
        return now_ms + RETRY_MS
    factor = rules.window_factor + rules.window_jitter * chance.random()
    if now_ms + 1000 * (rules.min_period_seconds + rules.buffer_seconds) > expires_ms:
        return now_ms + int((expires_ms - now_ms) * factor)
    starts_ms = now_ms if token.starts_ms is None else token.starts_ms
    proposed_ms = starts_ms + int((expires_ms - starts_ms) * factor)
    latest_ms = expires_ms - 1000 * rules.buffer_seconds
    return max(min(proposed_ms, latest_ms), now_ms + 1000 * rules.min_period_seconds)
