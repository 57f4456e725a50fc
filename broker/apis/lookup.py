"""Finding a partition that a request names, by topic name or topic id, and saying why it is not here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata_cache import NO_LEADER
from broker.replication.partition import Partition
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.services import BrokerServices


def find_partition(broker: BrokerServices, topic: str | bytes, index: int) -> Partition:
    """The partition, if it lives here in whatever role.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID if the cluster has no such partition,
    KAFKA_STORAGE_ERROR if its disk failed, NOT_LEADER_OR_FOLLOWER if others have it.
    """
    partition = broker.partitions.find(topic, index)
    if partition is not None:
        return partition
    topics = broker.metadata.image.topics
    image = topics.by_id.get(topic) if isinstance(topic, bytes) else topics.by_name.get(topic)
    if image is None and isinstance(topic, bytes):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    placed = None if image is None else image.partitions.get(index)
    if placed is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker.settings.node_id in placed.replicas and broker.partitions.is_offline(topic, index):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def find_leader(
    broker: BrokerServices, topic: str | bytes, index: int, current_leader_epoch: int = -1
) -> Partition:
    """The partition, if it is led here in the epoch that the client believes in (-1: it does not say)."""
    partition = find_partition(broker, topic, index)
    error = partition.replica.leader_error(current_leader_epoch)
    if error is not None:
        raise KafkaError(error)
    return partition


def find_replica(
    broker: BrokerServices, topic: str | bytes, index: int, current_leader_epoch: int = -1
) -> Partition:
    """The partition as it is here, led or followed, in the epoch that the client believes in (-1: it does not say)."""
    partition = find_partition(broker, topic, index)
    error = partition.replica.replica_error(current_leader_epoch)
    if error is not None:
        raise KafkaError(error)
    return partition


def known_leader(broker: BrokerServices, topic: str | bytes, index: int) -> tuple[int, int]:
    """(leader id, leader epoch) by the newest metadata; (-1, -1) if it knows none (KIP-951)."""
    topics = broker.metadata.image.topics
    image = topics.by_id.get(topic) if isinstance(topic, bytes) else topics.by_name.get(topic)
    placed = None if image is None else image.partitions.get(index)
    return (NO_LEADER, -1) if placed is None else (placed.leader, placed.leader_epoch)
