"""One question about many partitions, put to all of their leaders at once. Knows no particular question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.metadata import Leadership, TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.schema import Message
from runtime.channel import ChannelError

T = TypeVar("T")


class LeaderAnswers(NamedTuple, Generic[T]):
    """What one round of asking gave; each partition is in one of the two."""

    found: dict[TopicPartition, T]
    failed: dict[TopicPartition, ErrorCode]
    """UNSUPPORTED_VERSION if the leader cannot be asked."""


class PartitionAnswer(NamedTuple, Generic[T]):
    """Of one partition."""

    partition: TopicPartition
    code: ErrorCode
    value: T
    """Means nothing unless the code is NONE."""


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    question: Callable[[Mapping[TopicPartition, Leadership]], Message],
    answers: Callable[[Any], Iterable[PartitionAnswer[T]]],
) -> LeaderAnswers[T]:
    """Ask each leader one time. `question` is the request for the partitions that one node leads, `answers` reads its
    response; what nobody asked for is passed over.
    """
    by_node, leaderless = _by_leader(cluster, partitions)
    asked: LeaderAnswers[T] = LeaderAnswers({}, dict.fromkeys(leaderless, ErrorCode.LEADER_NOT_AVAILABLE))

    async def ask(node_id: int, led: dict[TopicPartition, Leadership]) -> None:
        # What is not in the answer, was not answered.
        asked.failed.update(dict.fromkeys(led, ErrorCode.UNKNOWN_SERVER_ERROR))
        try:
            response = await cluster.call(node_id, question(led))
        except KafkaError as error:
            asked.failed.update(dict.fromkeys(led, error.code))
        except ChannelError:
            asked.failed.update(dict.fromkeys(led, ErrorCode.NETWORK_EXCEPTION))
        else:
            for answer in answers(response):
                if answer.partition not in led:
                    continue
                if answer.code is ErrorCode.NONE:
                    asked.failed.pop(answer.partition, None)
                    asked.found[answer.partition] = answer.value
                else:
                    asked.failed[answer.partition] = answer.code

    async with trio.open_nursery() as nursery:
        for node_id, led in by_node.items():
            nursery.start_soon(ask, node_id, led)
    return asked


def _by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, dict[TopicPartition, Leadership]], list[TopicPartition]]:
    """Partitions by the node that leads them, and those that nobody leads."""
    by_node: dict[int, dict[TopicPartition, Leadership]] = {}
    leaderless = []
    for partition in partitions:
        leadership = cluster.leadership(partition)
        if leadership is None:
            leaderless.append(partition)
        else:
            by_node.setdefault(leadership.node_id, {})[partition] = leadership
    return by_node, leaderless
