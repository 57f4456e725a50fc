"""Core: which refusals of peers are worth a line in the log.

A node whose certificate has expired tries again some times in a second, for hours, and so does a client that is not
trusted: one line in a minute says as much.
"""

from __future__ import annotations

from dataclasses import dataclass

QUIET_MS = 60_000
"""Time for which a refusal is not logged again, by host of the peer and reason."""
MOST = 1_000
"""Pairs of host and reason that are remembered; beyond that the oldest is forgotten."""


@dataclass(slots=True)
class _Seen:
    logged_ms: float
    left_out: int = 0


class RefusedPeers:
    """The refusals of one server."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}

    def line_of(self, host: str, reason: str, now_ms: float) -> str | None:
        """The line for this refusal; None if it is left out."""
        seen = self._seen.pop((host, reason), None)
        if seen is not None and now_ms - seen.logged_ms < QUIET_MS:
            seen.left_out += 1
            self._seen[host, reason] = seen
            return None
        if len(self._seen) >= MOST:
            del self._seen[next(iter(self._seen))]
        self._seen[host, reason] = _Seen(now_ms)
        again = f"; {seen.left_out} more since the last line of this kind" if seen is not None and seen.left_out else ""
        return f"closing the connection from {host}: {reason}{again}"
