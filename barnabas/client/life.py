"""The life of a consumer: it is opened once, for the length of an `async with` block.

All of its tasks run in the block. If that is cancelled the network stays open for some time, to leave the group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.errors import IllegalStateException
from barnabas.client.session import first_failure, open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.runtime.world import World

CLOSE_TIMEOUT_MS = 30_000
CANCELLED_CLOSE_MS = 2_000
"""Time for a cancelled block to commit and to leave its group."""


class Life(ABC):
    """Base class of the consumers, which are for one task at a time."""

    _cluster: Cluster
    _nursery: trio.Nursery

    def __init__(self, settings: ClientSettings, world: World | None) -> None:
        self._common_settings = settings
        self._world = world
        self._life: AbstractAsyncContextManager[None] | None = None
        self._scope = trio.CancelScope()
        self._is_open = False
        self._in_use = False

    async def __aenter__(self) -> Self:
        if self._life is not None:
            raise IllegalStateException("this consumer was opened before: create another one")
        self._life = self._open()
        await self._life.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._life is not None
        try:
            return await self._life.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            # Users of a client do not see its tasks.
            failure = first_failure(group)
            if failure is None:
                raise
            if failure is error:
                return False
            raise failure from failure.__cause__

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            self._cluster, self._nursery = await nursery.start(self._hold)
            self._is_open = True
            self._begin()
            in_good_order = False
            try:
                yield
                in_good_order = True
            finally:
                try:
                    await self._end(in_good_order=in_good_order)
                finally:
                    self._scope.cancel()

    async def _hold(self, task_status: trio.TaskStatus[tuple[Cluster, trio.Nursery]]) -> None:
        """Keep the network open after a cancel from outside, for as long as closing takes."""
        with self._scope:
            async with open_cluster(self._common_settings, self._world) as cluster, trio.open_nursery() as nursery:
                task_status.started((cluster, nursery))
                # If the opening was cancelled, nobody else ends this.
                await trio.lowlevel.checkpoint_if_cancelled()
                self._scope.shield = True
                await trio.sleep_forever()

    @abstractmethod
    def _begin(self) -> None:
        """The network is open."""

    @abstractmethod
    async def _end(self, *, in_good_order: bool) -> None:
        """The block ends, by an exception unless `in_good_order`."""

    def _check_open(self) -> None:
        if not self._is_open:
            state = "not open yet: use it in an `async with` block" if self._life is None else "closed"
            raise IllegalStateException(f"this consumer is {state}")

    @contextmanager
    def _one_task(self) -> Iterator[None]:
        self._check_open()
        if self._in_use:
            raise IllegalStateException("a consumer is for one task at a time: another one polls it now")
        self._in_use = True
        try:
            yield
        finally:
            self._in_use = False


@contextmanager
def time_to_close(timeout_ms: int) -> Iterator[None]:
    """A block with `timeout_ms`, or less after a cancel, which does not end it."""
    if trio.current_effective_deadline() == -float("inf"):
        timeout_ms = min(timeout_ms, CANCELLED_CLOSE_MS)
    with trio.CancelScope(deadline=trio.current_time() + timeout_ms / 1000, shield=True):
        yield
