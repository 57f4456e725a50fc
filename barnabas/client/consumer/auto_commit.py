"""Automatic commits (enable.auto.commit): every auto.commit.interval.ms while the application polls, and on revocation.

A record counts as processed when the application polls again after it was returned, so nothing is committed that the
application has not seen. Commits run in the background; a failure is only logged, and retried after the next interval.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import trio

from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import KafkaError

log = logging.getLogger(__name__)

Positions = Mapping[TopicPartition, OffsetAndMetadata]
Commit = Callable[[Positions], Awaitable[None]]


class AutoCommit:
    """The automatic commits of one consumer."""

    def __init__(self, nursery: trio.Nursery, commit: Commit, interval_ms: int, retry_backoff_ms: int) -> None:
        """`nursery` runs the commits."""
        self._nursery = nursery
        self._commit = commit
        self._interval_ms = interval_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._due_ms: int | None = None
        self._running: trio.Event | None = None
        self._parting: tuple[tuple[TopicPartition, ...], trio.Event] | None = None
        """The commit that runs before these partitions are revoked."""

    def maybe(self, now_ms: int, positions: Callable[[], Positions]) -> None:
        """Commit in the background if the interval is over. The first interval begins with the first call."""
        if self._due_ms is None:
            self.begin_interval(now_ms)
        elif now_ms >= self._due_ms and self._running is None:
            self.begin_interval(now_ms)
            processed = positions()
            if processed:
                self._running = trio.Event()
                self._nursery.start_soon(self._run, processed, self._running)

    def begin_interval(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._interval_ms

    async def before_revocation(self, processed: Positions, deadline: float) -> bool:
        """Commit before these partitions are revoked; True if the commit ended, well or not, by `deadline` (trio's
        clock).

        A further call with the same partitions waits for the same commit.
        """
        partitions = tuple(processed)
        if not partitions:
            return True
        if self._parting is None or self._parting[0] != partitions:
            self._parting = (partitions, trio.Event())
            self._nursery.start_soon(self._run, processed, self._parting[1])
        ended = self._parting[1]
        with trio.move_on_at(deadline):
            await ended.wait()
        if ended.is_set():
            self._parting = None
        return ended.is_set()

    async def _run(self, processed: Positions, ended: trio.Event) -> None:
        try:
            await self._commit(processed)
        except KafkaError as error:
            if error.code.retriable and self._due_ms is not None:
                self._due_ms -= max(0, self._interval_ms - self._retry_backoff_ms)
            log.warning(
                "automatic commit of %s failed: %s", {str(each): processed[each].offset for each in processed}, error
            )
        finally:
            if self._running is ended:
                self._running = None
            ended.set()
