"""Shell: runs remote reads, some at a time, in their order; a read that finds the queue full is refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.background import Background, run_callback

Work = Callable[[], Awaitable[Any]]
Done = Callable[[Any, Exception | None], None]
"""Called with the result of the work, or with the error that ended it."""


class QueuedRead:
    """A read that waits or runs. `cancel` keeps it from beginning; its result is dropped if it runs already."""

    __slots__ = ("_done", "_work", "is_cancelled")

    def __init__(self, work: Work, done: Done) -> None:
        self._work = work
        self._done = done
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    async def run(self) -> None:
        if self.is_cancelled:
            return
        try:
            result = await self._work()
        except Exception as error:
            self._ended(None, error)
        else:
            self._ended(result, None)

    def _ended(self, result: Any, error: Exception | None) -> None:
        if not self.is_cancelled:
            run_callback(self._done, result, error)


class ReadQueue:
    """At most `runners()` reads run at once, and `most_waiting` wait."""

    def __init__(self, background: Background, runners: Callable[[], int], most_waiting: int) -> None:
        self._background = background
        self._runners = runners
        self._most_waiting = most_waiting
        self._waiting: deque[QueuedRead] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle_share(self) -> float:
        """Share of the runners that have nothing to do."""
        return max(0.0, 1 - self.running / self._runners())

    def submit(self, work: Work, done: Done) -> QueuedRead:
        """Run `work` when its turn comes. Raises KafkaError, UNKNOWN_SERVER_ERROR as in Kafka, if too many wait."""
        read = QueuedRead(work, done)
        if self.running < self._runners():
            self.running += 1
            self._background.spawn(self._run, read)
            return read
        if len(self._waiting) >= self._most_waiting:
            self._drop_cancelled()
        if len(self._waiting) >= self._most_waiting:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{len(self._waiting)} remote reads wait, as many as remote.log.reader.max.pending.tasks allows",
            )
        self._waiting.append(read)
        return read

    def _drop_cancelled(self) -> None:
        self._waiting = deque(read for read in self._waiting if not read.is_cancelled)

    async def _run(self, read: QueuedRead) -> None:
        try:
            await read.run()
            while self._waiting and self.running <= self._runners():
                await self._waiting.popleft().run()
        finally:
            self.running -= 1
