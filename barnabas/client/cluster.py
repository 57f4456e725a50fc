"""What a client knows of the cluster: who its brokers are, who leads which partition, and a channel to each.

Knowledge is refreshed when it is missing or proven wrong, never by a timer. Nothing here knows what is
produced or fetched; callers say which errors mean that the metadata is stale.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.primitives import ZERO_UUID
from protocol.schema import Message
from runtime.channel import Channel, ChannelError, NotSent, UnsupportedVersion
from runtime.world import Chance, World

log = logging.getLogger(__name__)

NO_LEADER = -1

STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Answers which say that another broker should have been asked."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic to partitions, as they come."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and where to reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads a partition, in which epoch; the node is -1 while nobody does."""

    node_id: int
    epoch: int


@dataclass(slots=True)
class TopicView:
    """The last that was heard of a topic."""

    topic_id: bytes
    leaders: dict[int, Leadership] = field(default_factory=dict)
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How patient a client is; names and defaults are Kafka's."""

    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    allow_auto_create_topics: bool = False


class NoBrokerAvailable(Exception):
    """No known broker answered; the request was certainly not processed."""


class Backoff:
    """Exponential waits with jitter of a fifth (KIP-580)."""

    def __init__(self, settings: ClusterSettings, chance: Chance) -> None:
        self._settings = settings
        self._chance = chance
        self.failures = 0

    def next_ms(self) -> int:
        """How long to wait after one more failure in a row."""
        settings = self._settings
        wait_ms = settings.retry_backoff_ms * 2 ** min(self.failures, 20)
        self.failures += 1
        return int(min(wait_ms, settings.retry_backoff_max_ms) * (0.8 + 0.4 * self._chance.random()))

    def reset(self) -> None:
        self.failures = 0


class Cluster:
    """One client's view of one cluster. All methods may be used by many tasks at once."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str = "barnabas",
        settings: ClusterSettings | None = None,
    ) -> None:
        """`nursery` runs the channels; cancelling it ends them."""
        self.world = world
        self.settings = settings or ClusterSettings()
        self.nodes: dict[int, Node] = {}
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicView] = {}
        """Every topic that was ever asked for; each refresh asks for all of them."""
        self._names: dict[bytes, str] = {}
        self._nursery = nursery
        self._client_id = client_id
        self._channels: dict[tuple[int, str], Channel] = {}
        self._bootstrap = [Channel(world, nursery, host, port, client_id=client_id) for host, port in bootstrap]
        self._refreshing = trio.Lock()
        self._refreshes = 0
        self._refreshed = False

    def backoff(self) -> Backoff:
        return Backoff(self.settings, self.world.chance)

    async def open_nursery(self) -> trio.Nursery:
        """Where a producer or a consumer runs its tasks, until it cancels that nursery or the cluster
        ends."""
        nursery: trio.Nursery = await self._nursery.start(_hold_nursery)
        return nursery

    def now_ms(self) -> int:
        """For deadlines only; records are stamped by the wall clock."""
        return self.world.monotonic.now_ms()

    # Who leads

    def leadership(self, partition: TopicPartition) -> Leadership | None:
        """Who leads, as far as is known; None if the partition is unknown or nobody leads it."""
        view = self.topics.get(partition.topic)
        leadership = view.leaders.get(partition.partition) if view is not None else None
        if leadership is None or leadership.node_id == NO_LEADER or leadership.node_id not in self.nodes:
            return None
        return leadership

    def topic_id(self, topic: str) -> bytes:
        view = self.topics.get(topic)
        return ZERO_UUID if view is None else view.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    async def partitions_count(self, topic: str, timeout_ms: int) -> int:
        """How many partitions `topic` has. KafkaError if it cannot be learnt in time, or is refused."""
        deadline_ms = self.now_ms() + timeout_ms
        backoff = self.backoff()
        asked = False
        while True:
            view = self.topics.get(topic)
            if view is not None and view.leaders:
                return len(view.leaders)
            if asked and view is not None:
                if view.error is not ErrorCode.NONE and not view.error.retriable:
                    raise KafkaError(view.error, f"topic {topic}")
                if self.now_ms() >= deadline_ms:
                    code = view.error if view.error is not ErrorCode.NONE else ErrorCode.REQUEST_TIMED_OUT
                    raise KafkaError(code, f"topic {topic}: nothing learnt in {timeout_ms} ms")
                await trio.sleep(min(backoff.next_ms(), max(1, deadline_ms - self.now_ms())) / 1000)
            await self.refresh([topic])
            asked = True

    def learn_leader(self, partition: TopicPartition, node_id: int, epoch: int) -> bool:
        """A broker said in passing who leads (KIP-951); False if that is no news, or of an unknown node."""
        view = self.topics.get(partition.topic)
        known = view.leaders.get(partition.partition) if view is not None else None
        if view is None or known is None or epoch <= known.epoch or node_id not in self.nodes:
            return False
        view.leaders[partition.partition] = Leadership(node_id, epoch)
        return True

    def learn_nodes(self, endpoints: Iterable[Any]) -> None:
        """Where brokers are; anything with node_id, host, port and rack."""
        for endpoint in endpoints:
            self._learn_node(Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack))

    # Metadata

    async def refresh(self, topics: Iterable[str] = ()) -> bool:
        """Ask for the metadata of `topics` and of all topics asked for before; False if no broker answered.

        Callers that come while a refresh is under way share the one after it.
        """
        for topic in topics:
            self.topics.setdefault(topic, TopicView(ZERO_UUID))
        wanted = self._refreshes + (2 if self._refreshing.locked() else 1)
        async with self._refreshing:
            if self._refreshes >= wanted:
                return self._refreshed
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=topic) for topic in self.topics],
                allow_auto_topic_creation=self.settings.allow_auto_create_topics,
            )
            try:
                self._absorb(await self.call_any(request))
                self._refreshed = True
            except (NoBrokerAvailable, ChannelError) as error:
                log.debug("metadata: %s", error)
                self._refreshed = False
            self._refreshes += 1
            return self._refreshed

    def _absorb(self, response: MetadataResponse) -> None:
        self.cluster_id = response.cluster_id
        self.learn_nodes(response.brokers)
        alive = {broker.node_id for broker in response.brokers}
        for node_id in [node_id for node_id in self.nodes if node_id not in alive]:
            del self.nodes[node_id]
        for topic in response.topics:
            if topic.name is not None:
                self._absorb_topic(topic.name, topic)

    def _absorb_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        known = self.topics.get(name)
        view = TopicView(topic.topic_id, error=error_code(topic.error_code))
        for partition in topic.partitions:
            view.leaders[partition.partition_index] = Leadership(partition.leader_id, partition.leader_epoch)
        if known is not None and known.topic_id == topic.topic_id:
            # A broker may lag behind what we heard already: within one life of a topic epochs only grow.
            for index, leadership in known.leaders.items():
                if index not in view.leaders or view.leaders[index].epoch < leadership.epoch:
                    view.leaders[index] = leadership
        elif known is not None and view.error is not ErrorCode.NONE:
            view.topic_id, view.leaders = known.topic_id, known.leaders
        self.topics[name] = view
        if view.topic_id != ZERO_UUID:
            self._names[view.topic_id] = name

    # Calls

    async def call(
        self, node_id: int, request: Message, timeout_ms: int = 0, *, at_most: int | None = None, line: str = ""
    ) -> Any:
        """Call one broker; raises as `Channel.call`, NotSent also if the broker is unknown.

        `timeout_ms` 0 means request.timeout.ms; `at_most` is the highest version that may be spoken. Each `line` is a
        connection of its own: a broker answers in order, so what may wait there for long must not share one.
        """
        node = self.nodes.get(node_id)
        if node is None:
            raise NotSent(f"broker {node_id} is unknown")
        channel = self._channel(node, line)
        timeout_ms = timeout_ms or self.settings.request_timeout_ms
        if not channel.connected:
            setup_ms = min(timeout_ms, self.settings.socket_connection_setup_timeout_ms)
            await channel.connect(timeout_ms=setup_ms)
        return await channel.call(request, timeout_ms=timeout_ms, at_most=at_most)

    async def call_any(self, request: Message, timeout_ms: int = 0) -> Any:
        """Call whichever broker can be reached. NoBrokerAvailable if none can; ChannelError if one was
        reached and did not answer, which leaves open whether it acted.
        """
        timeout_ms = timeout_ms or self.settings.request_timeout_ms
        setup_ms = self.settings.socket_connection_setup_timeout_ms
        reasons = []
        unsupported: UnsupportedVersion | None = None
        for channel in self._any_channels():
            try:
                if not channel.connected:
                    await channel.connect(timeout_ms=min(timeout_ms, setup_ms))
                return await channel.call(request, timeout_ms=timeout_ms)
            except UnsupportedVersion as error:
                unsupported = error
            except NotSent as error:
                reasons.append(str(error))
        if unsupported is not None:
            raise unsupported
        raise NoBrokerAvailable("; ".join(reasons) or "no broker is known")

    def _any_channels(self) -> Iterator[Channel]:
        """Channels that are open first, then the other known brokers from a random one on, then the
        bootstrap."""
        nodes = list(self.nodes.values())
        if nodes:
            start = self.world.chance.randrange(0, len(nodes))
            nodes = nodes[start:] + nodes[:start]
        channels = [self._channel(node) for node in nodes]
        yield from [channel for channel in channels if channel.connected]
        yield from [channel for channel in channels if not channel.connected]
        yield from self._bootstrap

    def _channel(self, node: Node, line: str = "") -> Channel:
        channel = self._channels.get((node.node_id, line))
        if channel is None:
            channel = Channel(self.world, self._nursery, node.host, node.port, client_id=self._client_id)
            self._channels[node.node_id, line] = channel
        return channel

    def _learn_node(self, node: Node) -> None:
        known = self.nodes.get(node.node_id)
        if known is not None and (known.host, known.port) != (node.host, node.port):
            for key in [key for key in self._channels if key[0] == node.node_id]:
                self._channels.pop(key).close()
        self.nodes[node.node_id] = node

    def close(self) -> None:
        for channel in [*self._bootstrap, *self._channels.values()]:
            channel.close()


async def _hold_nursery(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as nursery:
        task_status.started(nursery)
        await trio.sleep_forever()
