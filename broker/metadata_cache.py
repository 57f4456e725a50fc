"""The newest metadata image of this broker, with the views that requests need.

`update` swaps the whole immutable image, so a response never mixes two states of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.broker.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.kraft.metadata.image import BrokerImage, MetadataImage, PartitionImage
from barnabas.runtime.request import Request

INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC})

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients see it on one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


AsSeen = Callable[[Node, Request], Node]


def _as_advertised(node: Node, _: Request) -> Node:
    return node


class MetadataCache:
    """The image with derived views, each computed once per image and listener."""

    def __init__(self, image: MetadataImage, cluster_id: str) -> None:
        self.image = image
        self.cluster_id = cluster_id
        self._nodes: dict[str, dict[int, Node]] = {}
        self.as_seen: AsSeen = _as_advertised
        """Returns a broker as the client of a request is to dial it."""
        self._listed_until_ms: dict[int, int] = {}
        """Brokers that were fenced on evidence, and when their sessions would have ended."""

    def update(self, image: MetadataImage) -> None:
        if image.cluster is not self.image.cluster:
            self._nodes = {}
        self.image = image
        for broker_id in [broker_id for broker_id in self._listed_until_ms if self.is_alive(broker_id)]:
            del self._listed_until_ms[broker_id]

    def snapshot(self) -> MetadataCache:
        """A copy for a request in steps, all of which have to see the same state of the cluster."""
        now = MetadataCache(self.image, self.cluster_id)
        now._nodes = self._nodes
        now.as_seen = self.as_seen
        now._listed_until_ms = dict(self._listed_until_ms)
        return now

    def keep_listed(self, broker_ids: Iterable[int], until_ms: int) -> None:
        """Keep listing brokers that were fenced on evidence; their sessions would end at `until_ms`."""
        self._listed_until_ms |= dict.fromkeys(broker_ids, until_ms)

    def listed_nodes(self, listener_name: str, now_ms: int) -> dict[int, Node]:
        """The brokers that clients see: `alive_nodes`, and those whose death was detected before their session ended.

        Kafka lists a killed broker until its session ends, and clients detect its death meanwhile. librdkafka's
        transactions hang if a coordinator that they know disappears from the list at once.
        """
        listed = dict(self.alive_nodes(listener_name))
        for broker_id, until_ms in self._listed_until_ms.items():
            node = self.node(broker_id, listener_name)
            if now_ms < until_ms and node is not None:
                listed[broker_id] = node
        return listed

    def alive_nodes(self, listener_name: str) -> dict[int, Node]:
        """Brokers that are unfenced and have the listener, by id in ascending order."""
        nodes = self._nodes.get(listener_name)
        if nodes is None:
            nodes = {}
            for broker_id in sorted(self.image.cluster.brokers):
                broker = self.image.cluster.brokers[broker_id]
                if not broker.fenced and (node := node_of(broker, listener_name)) is not None:
                    nodes[broker_id] = node
            self._nodes[listener_name] = nodes
        return nodes

    def node(self, broker_id: int, listener_name: str) -> Node | None:
        """A broker's address, also while it is fenced; None if it is not registered or lacks the listener."""
        broker = self.image.cluster.brokers.get(broker_id)
        return None if broker is None else node_of(broker, listener_name)

    def is_alive(self, broker_id: int) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        image = self.image.topics.by_name.get(topic)
        return None if image is None else image.partitions.get(index)

    def topic_name(self, topic_id: bytes) -> str | None:
        image = self.image.topics.by_id.get(topic_id)
        return None if image is None else image.name

    def offline_replicas(self, partition: PartitionImage, listener_name: str) -> list[int]:
        """Replicas whose broker is not registered, fenced or not on this listener, or whose log directory is gone."""
        offline = []
        for replica, directory in zip(partition.replicas, partition.directories, strict=False):
            broker = self.image.cluster.brokers.get(replica)
            reachable = broker is not None and not broker.fenced and listener_name in broker.listeners
            if broker is None or not reachable or not _directory_is_online(broker, directory):
                offline.append(replica)
        return offline


_UNASSIGNED_DIRECTORIES = frozenset(((0).to_bytes(16, "big"), (2).to_bytes(16, "big")))
"""DirectoryId.UNASSIGNED and MIGRATING (KIP-858): nothing is known, so nothing is known to be lost."""


def _directory_is_online(broker: BrokerImage, directory: bytes) -> bool:
    return directory in _UNASSIGNED_DIRECTORIES or directory in broker.log_directories


def node_of(broker: BrokerImage, listener_name: str) -> Node | None:
    endpoint = broker.listeners.get(listener_name)
    if endpoint is None:
        return None
    return Node(broker.id, endpoint.host, endpoint.port, broker.rack)
