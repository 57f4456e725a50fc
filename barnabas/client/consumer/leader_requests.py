"""One request about many partitions, sent to all of their leaders at once. Knows no particular API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.metadata import Leadership, TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError

T = TypeVar("T")


class LeaderAnswers(NamedTuple, Generic[T]):
    """Result of one round of requests; each partition is in one of the two mappings."""

    found: dict[TopicPartition, T]
    failed: dict[TopicPartition, ErrorCode]
    """UNSUPPORTED_VERSION if the leader is too old for the request."""


class PartitionAnswer(NamedTuple, Generic[T]):
    """The response for one partition."""

    partition: TopicPartition
    code: ErrorCode
    value: T
    """Valid only if the code is NONE."""


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    question: Callable[[Mapping[TopicPartition, Leadership]], Message],
    answers: Callable[[Any], Iterable[PartitionAnswer[T]]],
) -> LeaderAnswers[T]:
    """Send each leader one request. `question` makes the request for the partitions that one node leads, `answers`
    reads the response; partitions that were not requested are ignored.
    """
    by_node, leaderless = _by_leader(cluster, partitions)
    asked: LeaderAnswers[T] = LeaderAnswers({}, dict.fromkeys(leaderless, ErrorCode.LEADER_NOT_AVAILABLE))

    async def ask(node_id: int, led: dict[TopicPartition, Leadership]) -> None:
        # Partitions that the response lacks keep this error.
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
    """Partitions by leader, and those without a known leader."""
    by_node: dict[int, dict[TopicPartition, Leadership]] = {}
    leaderless = []
    for partition in partitions:
        leadership = cluster.leadership(partition)
        if leadership is None:
            leaderless.append(partition)
        else:
            by_node.setdefault(leadership.node_id, {})[partition] = leadership
    return by_node, leaderless
