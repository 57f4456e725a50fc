"""Where leader epochs end, asked of the leaders (OffsetForLeaderEpoch): tells a reader whether the log that it has
read is still the log (KIP-320). Knows no positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import trio

from barnabas.client.cluster import Cluster, Leadership, TopicPartition
from barnabas.client.consumer.list_offsets import CONSUMER, by_leader
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from runtime.channel import ChannelError


class EpochEnd(NamedTuple):
    """The latest epoch of a log up to one that was asked for, and its end offset; -1, -1 if there is none."""

    epoch: int
    end_offset: int


class EpochEnds(NamedTuple):
    """What one round of asking gave; each partition is in one of the two."""

    found: dict[TopicPartition, EpochEnd]
    failed: dict[TopicPartition, ErrorCode]
    """UNSUPPORTED_VERSION if the leader cannot be asked."""


async def ask_epoch_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> EpochEnds:
    """Ask all leaders at once, each one time, where these epochs end."""
    by_node, leaderless = by_leader(cluster, epochs)
    asked = EpochEnds({}, dict.fromkeys(leaderless, ErrorCode.LEADER_NOT_AVAILABLE))

    async def ask(node_id: int, partitions: dict[TopicPartition, Leadership]) -> None:
        # What is not in the answer, was not answered.
        asked.failed.update(dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR))
        try:
            response: OffsetForLeaderEpochResponse = await cluster.call(node_id, _request(partitions, epochs))
        except KafkaError as error:
            asked.failed.update(dict.fromkeys(partitions, error.code))
        except ChannelError:
            asked.failed.update(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION))
        else:
            _take(response, partitions, asked)

    async with trio.open_nursery() as nursery:
        for node_id, partitions in by_node.items():
            nursery.start_soon(ask, node_id, partitions)
    return asked


def _request(
    partitions: Mapping[TopicPartition, Leadership], epochs: Mapping[TopicPartition, int]
) -> OffsetForLeaderEpochRequest:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for partition, leadership in partitions.items():
        topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic)).partitions.append(
            OffsetForLeaderPartition(
                partition=partition.partition,
                current_leader_epoch=leadership.epoch,
                leader_epoch=epochs[partition],
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=list(topics.values()))


def _take(
    response: OffsetForLeaderEpochResponse, partitions: Mapping[TopicPartition, Leadership], asked: EpochEnds
) -> None:
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.topic, answer.partition)
            if partition not in partitions:
                continue
            code = error_code(answer.error_code)
            if code is ErrorCode.NONE:
                asked.failed.pop(partition, None)
                asked.found[partition] = EpochEnd(answer.leader_epoch, answer.end_offset)
            else:
                asked.failed[partition] = code
