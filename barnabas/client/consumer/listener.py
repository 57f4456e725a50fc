"""What an application wants to hear when partitions come and go."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from barnabas.client.metadata import TopicPartition

OnPartitions = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]
"""Told partitions; a plain function or a coroutine function."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """All are called inside of `poll`, at `unsubscribe` and at the end, and may use the consumer.

    What one of them raises comes out of `poll`, once what it was told of is done.
    """

    on_assigned: OnPartitions | None = None
    """These are the consumer's own from now on: the moment to seek elsewhere than to what the group has committed."""
    on_revoked: OnPartitions | None = None
    """It is about to give these up: the last moment to commit what was done with them."""
    on_lost: OnPartitions | None = None
    """These may be somebody else's already, nothing can be committed for them. None: `on_revoked` is told."""

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await _tell(self.on_assigned, partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await _tell(self.on_revoked, partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        await _tell(self.on_revoked if self.on_lost is None else self.on_lost, partitions)


async def _tell(call: OnPartitions | None, partitions: Sequence[TopicPartition]) -> None:
    if call is not None:
        told = call(partitions)
        if inspect.isawaitable(told):
            await told
