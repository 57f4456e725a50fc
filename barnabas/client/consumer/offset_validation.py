"""OffsetForLeaderEpoch: ends of leader epochs, from the leaders, by which a reader detects that the log was truncated
(KIP-320). Knows no positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.leader_requests import LeaderAnswers, PartitionAnswer, ask_leaders
from barnabas.client.metadata import Leadership, TopicPartition
from barnabas.client.offset_lookup import CONSUMER
from barnabas.protocol.errors import error_code
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


class EpochEnd(NamedTuple):
    """The latest epoch of a log up to the requested one, and its end offset; -1, -1 if there is none."""

    epoch: int
    end_offset: int


async def ask_epoch_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> LeaderAnswers[EpochEnd]:
    """Send each leader one request for the ends of these epochs."""
    return await ask_leaders(cluster, epochs, partial(_request, epochs), _answers)


def _request(
    epochs: Mapping[TopicPartition, int], partitions: Mapping[TopicPartition, Leadership]
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


def _answers(response: OffsetForLeaderEpochResponse) -> Iterator[PartitionAnswer[EpochEnd]]:
    for topic in response.topics:
        for answer in topic.partitions:
            end = EpochEnd(answer.leader_epoch, answer.end_offset)
            yield PartitionAnswer(TopicPartition(topic.topic, answer.partition), error_code(answer.error_code), end)
