"""Shell: asks a leader where its leader epochs end (OffsetForLeaderEpoch), for a follower of a compacted log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from barnabas.broker.replication.follower import EpochWanted
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


class Channel(Protocol):
    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        """Raises ChannelError."""


class FollowedPartition(Protocol):
    """The part of `broker.replication.partition.Partition` that is used here."""

    @property
    def topic(self) -> str: ...

    @property
    def index(self) -> int: ...


async def ask_epochs(
    channel: Channel, node_id: int, wanted: Iterable[tuple[FollowedPartition, EpochWanted]], timeout_ms: float
) -> dict[tuple[str, int], tuple[int, int]]:
    """(largest epoch up to the wanted one, its end offset) by topic and partition, without those that the leader
    answered with an error.

    Raises ChannelError.
    """
    topics: dict[str, OffsetForLeaderTopic] = {}
    for partition, epoch in wanted:
        topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic)).partitions.append(
            OffsetForLeaderPartition(
                partition=partition.index, current_leader_epoch=epoch.leader_epoch, leader_epoch=epoch.epoch
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
