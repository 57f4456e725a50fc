"""Core: metadata of a cluster, as one client knows it: brokers, topics, partition leaders.

It comes from Metadata responses and from leaders that other responses mention (KIP-951). As long as a topic has the
same id its leader epochs only grow, so older metadata never replaces newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.protocol.primitives import ZERO_UUID

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
"""Errors of a broker that is not the one to ask."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the given order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.node_id})"


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader of a partition and its epoch; node -1 while there is none."""

    node_id: int
    epoch: int


class PartitionInfo(NamedTuple):
    """A partition and its replicas."""

    topic: str
    partition: int
    leader: Node | None
    """None while there is no leader."""
    replicas: tuple[int, ...]
    """Node ids; the first is the preferred leader."""
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(slots=True)
class TopicView:
    """Latest metadata of one topic."""

    topic_id: bytes
    leaders: dict[int, Leadership] = field(default_factory=dict)
    error: ErrorCode = ErrorCode.NONE
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)
    """From the last Metadata response; `leaders` may be newer."""
    internal: bool = False
    used: bool = True
    """Whether it was used since the last `forget_unused`."""
    used_ms: int = 0


class Metadata:
    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicView] = {}
        """Every topic that was ever requested, until it is forgotten."""
        self._names: dict[bytes, str] = {}

    # What is known

    def leadership(self, partition: TopicPartition) -> Leadership | None:
        """None if the partition is unknown, or has no leader with a known address."""
        view = self.topics.get(partition.topic)
        if view is None:
            return None
        view.used = True
        leadership = view.leaders.get(partition.partition)
        if leadership is None or leadership.node_id not in self.nodes:
            return None
        return leadership

    def topic_id(self, topic: str) -> bytes:
        """ZERO_UUID if it is unknown, or the brokers are too old to have topic ids."""
        view = self.topics.get(topic)
        return ZERO_UUID if view is None else view.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """In the order of their numbers; empty while the topic is unknown."""
        view = self.topics.get(topic)
        if view is None:
            return []
        view.used = True
        return [view.partitions[index] for index in sorted(view.partitions)]

    # News

    def want(self, topic: str) -> None:
        """Request this topic from now on."""
        view = self.topics.get(topic)
        if view is None:
            self.topics[topic] = TopicView(ZERO_UUID)
        else:
            view.used = True

    def absorb(self, response: MetadataResponse) -> list[int]:
        """Take over a response; returns the nodes whose address has changed."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id if response.controller_id >= 0 else None
        moved = self.learn_nodes(response.brokers)
        alive = {broker.node_id for broker in response.brokers}
        for node_id in [node_id for node_id in self.nodes if node_id not in alive]:
            del self.nodes[node_id]
        for topic in response.topics:
            if topic.name is not None:
                self._absorb_topic(topic.name, topic)
        return moved

    def learn_nodes(self, endpoints: Iterable[Any]) -> list[int]:
        """Take over addresses: objects with node_id, host, port and rack. Returns the nodes whose address has
        changed."""
        moved = []
        for endpoint in endpoints:
            known = self.nodes.get(endpoint.node_id)
            rack = endpoint.rack
            if known is not None and (known.host, known.port) == (endpoint.host, endpoint.port):
                # Some responses give an address without a rack.
                if rack is None or rack == known.rack:
                    continue
            elif known is not None:
                moved.append(known.node_id)
            self.nodes[endpoint.node_id] = Node(endpoint.node_id, endpoint.host, endpoint.port, rack)
        return moved

    def learn_leader(self, partition: TopicPartition, node_id: int, epoch: int) -> bool:
        """Take over a leader from another response (KIP-951); False if it is not newer, or of an unknown node."""
        view = self.topics.get(partition.topic)
        known = view.leaders.get(partition.partition) if view is not None else None
        if view is None or known is None or epoch <= known.epoch or node_id not in self.nodes:
            return False
        view.leaders[partition.partition] = Leadership(node_id, epoch)
        return True

    def forget_nodes(self) -> None:
        self.nodes.clear()

    def forget_unused(self, now_ms: int, max_idle_ms: int) -> list[str]:
        """Drop and return the topics that were not used for `max_idle_ms`, measured at the calls of this method."""
        forgotten = []
        for topic, view in list(self.topics.items()):
            if view.used:
                view.used, view.used_ms = False, now_ms
            elif now_ms - view.used_ms >= max_idle_ms:
                del self.topics[topic]
                self._names.pop(view.topic_id, None)
                forgotten.append(topic)
        return forgotten

    def _absorb_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        known = self.topics.get(name) or TopicView(ZERO_UUID)
        view = TopicView(topic.topic_id, error=error_code(topic.error_code), internal=topic.is_internal)
        view.used, view.used_ms = known.used, known.used_ms
        view.partitions = partitions_of(topic, self.nodes)
        for partition in topic.partitions:
            view.leaders[partition.partition_index] = Leadership(partition.leader_id, partition.leader_epoch)
        if known.topic_id == topic.topic_id:
            # The broker may lag behind: epochs of one topic id only grow.
            for index, leadership in known.leaders.items():
                if index not in view.leaders or view.leaders[index].epoch < leadership.epoch:
                    view.leaders[index] = leadership
            view.partitions = known.partitions | view.partitions
        elif view.error is not ErrorCode.NONE:
            view.topic_id, view.leaders, view.partitions = known.topic_id, known.leaders, known.partitions
        self.topics[name] = view
        if view.topic_id != ZERO_UUID:
            self._names[view.topic_id] = name


def nodes_of(response: MetadataResponse) -> dict[int, Node]:
    return {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers}


def partitions_of(topic: MetadataResponseTopic, nodes: Mapping[int, Node]) -> dict[int, PartitionInfo]:
    """The partitions of one topic in a response, by number, in order."""
    return {
        partition.partition_index: PartitionInfo(
            topic.name or "",
            partition.partition_index,
            nodes.get(partition.leader_id),
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
    }
