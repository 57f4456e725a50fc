"""Shell: asks a leader where its epochs end (OffsetForLeaderEpoch), for a copy of a compacted log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from broker.replication.follower import EpochWanted
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


class Channel(Protocol):
    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        """Raises ChannelError."""


class Place(Protocol):
    """What is used of `broker.replication.partition.Partition`."""

    @property
    def topic(self) -> str: ...

    @property
    def index(self) -> int: ...


async def ask_epochs(
    channel: Channel, node_id: int, wanted: Iterable[tuple[Place, EpochWanted]], timeout_ms: float
) -> dict[tuple[str, int], tuple[int, int]]:
    """(largest epoch up to the wanted one, its end) by topic and partition, of those that the leader answers for.

    Raises ChannelError.
    """
    topics: dict[str, OffsetForLeaderTopic] = {}
    for place, epoch in wanted:
        topics.setdefault(place.topic, OffsetForLeaderTopic(topic=place.topic)).partitions.append(
            OffsetForLeaderPartition(
                partition=place.index, current_leader_epoch=epoch.leader_epoch, leader_epoch=epoch.epoch
            )
        )
    request = OffsetForLeaderEpochRequest(replica_id=node_id, topics=list(topics.values()))
    response: OffsetForLeaderEpochResponse = await channel.call(request, timeout_ms=timeout_ms)
    return {
        (topic.topic, end.partition): (end.leader_epoch, end.end_offset)
        for topic in response.topics
        for end in topic.partitions
        if end.error_code == 0
    }
