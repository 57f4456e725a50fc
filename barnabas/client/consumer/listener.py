"""Callbacks of an application for rebalances."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from barnabas.client.metadata import TopicPartition

OnPartitions = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]
"""Called with partitions; a plain function or a coroutine function."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """Called inside of `poll`, at `unsubscribe` and on closing; the functions may use the consumer.

    An exception of a callback is raised by `poll`, after the change of the assignment is completed.
    """

    on_assigned: OnPartitions | None = None
    """Called after partitions were assigned: the moment to seek to other offsets than the committed ones."""
    on_revoked: OnPartitions | None = None
    """Called before partitions are given up: the last moment to commit offsets for them."""
    on_lost: OnPartitions | None = None
    """Called when partitions may already belong to another member: nothing can be committed. None: `on_revoked`."""

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await _notify(self.on_assigned, partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await _notify(self.on_revoked, partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        await _notify(self.on_revoked if self.on_lost is None else self.on_lost, partitions)


async def _notify(call: OnPartitions | None, partitions: Sequence[TopicPartition]) -> None:
    if call is not None:
        result = call(partitions)
        if inspect.isawaitable(result):
            await result
