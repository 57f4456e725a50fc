"""Shell: asks a leader for offsets of its logs (ListOffsets), for followers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from barnabas.broker.replication.leader_epochs import Channel, FollowedPartition
from barnabas.broker.replication.tier_start import TierBounds
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST, EARLIEST = -1, -2
EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD = -4, -6

Place = tuple[str, int]
Offsets = dict[Place, tuple[int, int]]
"""(offset, its leader epoch) by topic and partition."""


class Wanted(Protocol):
    """A request of the follower core."""

    @property
    def leader_epoch(self) -> int: ...


async def ask_offsets(
    channel: Channel,
    node_id: int,
    wanted: Iterable[tuple[FollowedPartition, Wanted]],
    timestamp: int,
    timeout_ms: int,
) -> Offsets:
    """Without those that the leader answered with an error, or does not know. Raises ChannelError."""
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, asked in wanted:
        topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic)).partitions.append(
            ListOffsetsPartition(
                partition_index=partition.index, current_leader_epoch=asked.leader_epoch, timestamp=timestamp
            )
        )
    if not topics:
        return {}
    request = ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()), timeout_ms=timeout_ms)
    response: ListOffsetsResponse = await channel.call(request, timeout_ms=timeout_ms)
    return {
        (topic.name, data.partition_index): (data.offset, data.leader_epoch)
        for topic in response.topics
        for data in topic.partitions
        if data.error_code == 0 and data.offset >= 0
    }


async def ask_tiers(
    channel: Channel, node_id: int, wanted: Mapping[Place, tuple[Any, Any]], timeout_ms: int
) -> dict[Place, TierBounds]:
    """The answers to `TierWanted`, by topic and partition, without those that the leader does not know. `wanted`:
    (partition, `TierWanted`). Raises ChannelError."""
    asked = list(wanted.values())
    starts = await ask_offsets(channel, node_id, asked, EARLIEST, timeout_ms)
    local = await ask_offsets(channel, node_id, asked, EARLIEST_LOCAL, timeout_ms)
    behind = [each for each in asked if each[1].behind_copied]
    uncopied = await ask_offsets(channel, node_id, behind, EARLIEST_PENDING_UPLOAD, timeout_ms)
    found: dict[Place, TierBounds] = {}
    for place, (_, tier) in wanted.items():
        begin = uncopied.get(place) if tier.behind_copied else local.get(place)
        if begin is None and place in local and local[place][0] == starts.get(place, (-1, -1))[0]:
            # Nothing was copied yet.
            begin = local[place]
        if begin is not None and place in starts:
            found[place] = TierBounds(starts[place][0], *begin)
    return found
