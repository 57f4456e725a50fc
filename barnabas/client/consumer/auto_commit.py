"""Commits without being asked (enable.auto.commit): now and then while the application polls, and before partitions go.

A record counts as done when the application polls again after it was given, so nothing is committed that it has not
seen. Commits run in the background; one that fails is told to the log only, and tried again at the next interval.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import trio

from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from protocol.errors import KafkaError

log = logging.getLogger(__name__)

Positions = Mapping[TopicPartition, OffsetAndMetadata]
Commit = Callable[[Positions], Awaitable[None]]


class AutoCommit:
    """Of one consumer."""

    def __init__(self, nursery: trio.Nursery, commit: Commit, interval_ms: int, retry_backoff_ms: int) -> None:
        """The nursery runs the commits."""
        self._nursery = nursery
        self._commit = commit
        self._interval_ms = interval_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._due_ms: int | None = None
        self._running: trio.Event | None = None
        self._parting: tuple[tuple[TopicPartition, ...], trio.Event] | None = None
        """The commit before these partitions go."""

    def maybe(self, now_ms: int, positions: Callable[[], Positions]) -> None:
        """Commit in the background if it is time to. The first interval begins with the first call."""
        if self._due_ms is None:
            self.begin_interval(now_ms)
        elif now_ms >= self._due_ms and self._running is None:
            self.begin_interval(now_ms)
            done = positions()
            if done:
                self._running = trio.Event()
                self._nursery.start_soon(self._run, done, self._running)

    def begin_interval(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._interval_ms

    async def before_parting(self, done: Positions, deadline: float) -> bool:
        """Commit because these partitions go; True when that has ended, well or not, by `deadline` (trio's clock).

        Called again with the same partitions it goes on waiting for the same commit.
        """
        partitions = tuple(done)
        if not partitions:
            return True
        if self._parting is None or self._parting[0] != partitions:
            self._parting = (partitions, trio.Event())
            self._nursery.start_soon(self._run, done, self._parting[1])
        ended = self._parting[1]
        with trio.move_on_at(deadline):
            await ended.wait()
        if ended.is_set():
            self._parting = None
        return ended.is_set()

    async def _run(self, done: Positions, ended: trio.Event) -> None:
        try:
            await self._commit(done)
        except KafkaError as error:
            if error.code.retriable and self._due_ms is not None:
                self._due_ms -= max(0, self._interval_ms - self._retry_backoff_ms)
            log.warning("offsets %s were not committed: %s", {str(each): done[each].offset for each in done}, error)
        finally:
            if self._running is ended:
                self._running = None
            ended.set()
