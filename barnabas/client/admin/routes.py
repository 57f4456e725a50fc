"""Routes: the leader of a partition, the coordinator of a group or transactional id, a certain broker, all brokers.

Looked up for each call: an administrator calls seldom, and cached results would be outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import trio

from barnabas.client.admin.calls import LATE_BROKER_MS, Calls, Nowhere, Place, Question
from barnabas.client.admin.results import refusal
from barnabas.client.groups.coordinators import CoordinatorType
from barnabas.client.metadata import NO_LEADER, Node, TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.primitives import uuid_from_string

K = TypeVar("K")
V = TypeVar("V")


class Leaders:
    """Routes partitions to their leaders."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._given_up_at_ms = calls.cluster.now_ms() + LATE_BROKER_MS

    async def places(self, keys: Sequence[TopicPartition], timeout_ms: int) -> list[Place]:
        response = await _metadata(self._calls, [key.topic for key in keys], timeout_ms)
        errors = {topic.name: refusal(topic.error_code, None, f"topic {topic.name}") for topic in response.topics}
        leaders = {
            (topic.name, partition.partition_index): partition.leader_id
            for topic in response.topics
            for partition in topic.partitions
        }
        alive = {broker.node_id for broker in response.brokers}
        return [self._place(key, errors.get(key.topic), leaders.get(key), alive) for key in keys]

    def _place(self, key: TopicPartition, error: KafkaError | None, leader: int | None, alive: set[int]) -> Place:
        if error is None and leader is None:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {key} does not exist")
        if error is not None:
            late = (
                error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                and self._calls.cluster.now_ms() >= self._given_up_at_ms
            )
            return Nowhere(error, final=late or not error.retriable)
        if leader == NO_LEADER or leader not in alive:
            return Nowhere(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {key} has no leader"))
        return leader


class Coordinators(Generic[K]):
    """Routes items to the coordinator of their group or transactional id."""

    def __init__(self, calls: Calls, kind: CoordinatorType, of: Callable[[K], str]) -> None:
        self._calls = calls
        self._kind = kind
        self._of = of
        self.found: dict[str, Node] = {}
        """The coordinator of each name, from the last lookup."""

    async def places(self, keys: Sequence[K], timeout_ms: int) -> list[Place]:
        names = list(dict.fromkeys(map(self._of, keys)))
        request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=names)
        response: FindCoordinatorResponse = await self._calls.cluster.call_any(request, timeout_ms)
        found: dict[str, Place] = {}
        for coordinator in response.coordinators:
            what = f"the coordinator of {coordinator.key}"
            error = refusal(coordinator.error_code, coordinator.error_message, what)
            if error is not None:
                found[coordinator.key] = Nowhere(error, final=not error.retriable)
            else:
                node = Node(coordinator.node_id, coordinator.host, coordinator.port)
                self._calls.cluster.learn_nodes([node])
                found[coordinator.key] = node.node_id
                self.found[coordinator.key] = node
        missing = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker's response lacks the coordinator")
        return [found.get(self._of(key), Nowhere(missing)) for key in keys]


def group_coordinators(calls: Calls, of: Callable[[K], str]) -> Coordinators[K]:
    return Coordinators(calls, CoordinatorType.GROUP, of)


def transaction_coordinators(calls: Calls) -> Coordinators[str]:
    return Coordinators(calls, CoordinatorType.TRANSACTION, str)


class CertainBrokers(Generic[K]):
    """Routes items to certain brokers, or to any (None). BROKER_NOT_AVAILABLE if a broker is not registered."""

    def __init__(self, calls: Calls, of: Callable[[K], int | None]) -> None:
        self._calls = calls
        self._of = of
        self._given_up_at_ms = calls.cluster.now_ms() + LATE_BROKER_MS

    async def places(self, keys: Sequence[K], timeout_ms: int) -> list[Place]:
        wanted = [self._of(key) for key in keys]
        if all(node_id is None for node_id in wanted):
            return list(wanted)
        alive = await living_brokers(self._calls, timeout_ms)
        return [node_id if node_id is None or node_id in alive else self._missing(node_id) for node_id in wanted]

    def _missing(self, node_id: int) -> Nowhere:
        error = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} does not exist or is not alive")
        return Nowhere(error, final=self._calls.cluster.now_ms() >= self._given_up_at_ms)


class _AllBrokers:
    """Routes broker ids to themselves. BROKER_NOT_AVAILABLE at once for a broker that is no longer alive."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def places(self, keys: Sequence[int], timeout_ms: int) -> list[Place]:
        alive = await living_brokers(self._calls, timeout_ms)
        gone = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is no longer alive")
        return [key if key in alive else Nowhere(gone, final=True) for key in keys]


async def living_brokers(calls: Calls, timeout_ms: int) -> list[int]:
    """Ids, in order. Raises as `Cluster.call_any`, and KafkaError."""
    return sorted(broker.node_id for broker in (await _metadata(calls, (), timeout_ms)).brokers)


async def _metadata(calls: Calls, topics: Iterable[str], timeout_ms: int) -> MetadataResponse:
    """Metadata of any broker. Raises as `Cluster.call_any`, and KafkaError."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in dict.fromkeys(topics)], allow_auto_topic_creation=False
    )
    response: MetadataResponse = await calls.cluster.call_any(request, timeout_ms)
    if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
        # The broker belongs to another cluster by now (KIP-1102); a refresh returns to the bootstrap servers.
        await calls.cluster.refresh()
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "a broker answered REBOOTSTRAP_REQUIRED")
    if error := refusal(response.error_code, None, "metadata"):
        raise error
    calls.cluster.learn_nodes(response.brokers)
    return response


async def ask_all_brokers(calls: Calls, question: Question[int, V]) -> dict[int, V]:
    """Responses of all live brokers. If one dies meanwhile, others have taken over its data, and all are called again.
    KafkaError of the first broker without a response in time.
    """
    calls = calls.together()
    while True:
        answers = await calls.ask(await all_brokers(calls), _AllBrokers(calls), question)
        if not any(error.code is ErrorCode.BROKER_NOT_AVAILABLE for error in answers.errors.values()):
            return answers.all()
        await trio.sleep(calls.cluster.backoff().next_ms() / 1000)


async def all_brokers(calls: Calls) -> list[int]:
    """Ids of the live brokers, in order; at least one."""

    def read(response: MetadataResponse) -> list[int] | KafkaError:
        calls.cluster.learn_nodes(response.brokers)
        ids = sorted(broker.node_id for broker in response.brokers)
        return ids or KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the metadata lists no broker")

    return await calls.one("brokers", lambda _: MetadataRequest(topics=[], allow_auto_topic_creation=False), read)


def partitions_in(partitions: Iterable[TopicPartition] | TopicPartition) -> list[TopicPartition]:
    """The items in order, without duplicates; plain pairs are partitions, too. One partition is one item."""
    if isinstance(partitions, TopicPartition):
        return [partitions]
    return list(dict.fromkeys(TopicPartition(*partition) for partition in partitions))


def names_in(texts: Iterable[str] | str) -> list[str]:
    """The items in order, without duplicates. One string is one item, not its letters."""
    return list(dict.fromkeys([texts] if isinstance(texts, str) else texts))


def uuid_of(text: str) -> bytes:
    """InvalidRequestException if the text is not a uuid as Kafka prints them."""
    try:
        return uuid_from_string(text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
