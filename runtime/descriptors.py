"""Limits connections while file descriptors run short: log files and the links between nodes need some as well.

Above the budget a new connection takes the place of those that have been idle for long, the oldest first. If there are
none, it is closed at once. The links between nodes are busy, so they stay, and a node that dials again gets in.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable, Iterable
from typing import Protocol

log = logging.getLogger(__name__)

RESERVE_SHARE = 4
MOST_RESERVED = 4096
"""One in `RESERVE_SHARE` descriptors, but at most `MOST_RESERVED`, is kept for files and for connections that the node
dials."""
IDLE_MS = 10_000
"""A connection without traffic for this long may be closed for another."""
EVICTED_AT_ONCE = 16
COUNT_EVERY_MS = 1_000
COUNT_EVERY_CONNECTIONS = 16
"""Time and connections after which descriptors are counted again: files come and go, too."""
REPORT_EVERY_MS = 10_000


def count_descriptors() -> tuple[int, int]:
    """(open descriptors of this process, its soft limit)"""
    allowed, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        # Recent kernels give the number as the size of the directory.
        used = os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        used = 0  # no such directory on this system: the connections alone are counted
    return used, allowed


class Evictable(Protocol):
    """A connection that may be closed for another."""

    def is_idle_since(self, deadline_ms: int) -> bool: ...

    def close(self) -> None: ...


class DescriptorBudget:
    """The descriptors that the connections of one server may take."""

    def __init__(self, count: Callable[[], tuple[int, int]] | None) -> None:
        """Without `count` there is no limit, as in a simulation."""
        self._count = count
        self._for_connections = 0
        self._count_at_ms: int | None = None
        self._since_count = 0
        self._refused = 0
        self._evicted = 0
        self._report_at_ms = 0

    def admits(self, connections: Iterable[Evictable], number: int, now_ms: int) -> bool:
        """True if one more may be served beside these `number` connections, oldest first. May close some of them."""
        if self._count is None:
            return True
        self._since_count += 1
        if self._count_at_ms is None or now_ms >= self._count_at_ms or self._since_count >= COUNT_EVERY_CONNECTIONS:
            self._count_at_ms, self._since_count = now_ms + COUNT_EVERY_MS, 0
            used, allowed = self._count()
            others = max(0, used - number)
            reserve = min(allowed // RESERVE_SHARE, MOST_RESERVED)
            self._for_connections = allowed - reserve - others
        if number < self._for_connections:
            return True
        evicted = self._evict(connections, now_ms - IDLE_MS)
        self._evicted += evicted
        self._refused += not evicted
        self._report(number, now_ms)
        return evicted > 0

    def _evict(self, connections: Iterable[Evictable], deadline_ms: int) -> int:
        idle: list[Evictable] = []
        for connection in connections:
            if connection.is_idle_since(deadline_ms):
                idle.append(connection)
                if len(idle) == EVICTED_AT_ONCE:
                    break
        for connection in idle:
            connection.close()
        return len(idle)

    def _report(self, number: int, now_ms: int) -> None:
        if now_ms < self._report_at_ms:
            return
        self._report_at_ms = now_ms + REPORT_EVERY_MS
        log.warning(
            "descriptors run short with %d connections: %d idle ones were closed, %d new ones were refused;"
            " `ulimit -n` sets the limit",
            number,
            self._evicted,
            self._refused,
        )
        self._evicted = self._refused = 0
