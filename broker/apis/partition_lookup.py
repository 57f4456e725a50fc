"""`PartitionLookup`: finds the partition that a request names, by topic name or topic id, or the error code for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from barnabas.broker.metadata_cache import NO_LEADER, MetadataCache
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError


class LocalPartitions(Protocol):
    """The part of `Partitions` that request handlers use."""

    def find(self, topic: bytes | str, index: int) -> Partition | None: ...

    def missing_error(self, topic: bytes | str, index: int) -> ErrorCode: ...

    def is_offline(self, topic: bytes | str, index: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class PartitionLookup:
    """The replicas on this broker, beside the newest metadata, which may be ahead of them."""

    partitions: LocalPartitions
    metadata: MetadataCache
    node_id: int

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The partition, in whatever role it is on this broker.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID if the cluster has no such partition,
        KAFKA_STORAGE_ERROR if its disk failed, NOT_LEADER_OR_FOLLOWER if only other brokers have it.
        """
        partition = self.partitions.find(topic, index)
        if partition is not None:
            return partition
        topics = self.metadata.image.topics
        image = topics.by_id.get(topic) if isinstance(topic, bytes) else topics.by_name.get(topic)
        if image is None and isinstance(topic, bytes):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        placed = None if image is None else image.partitions.get(index)
        if placed is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.node_id in placed.replicas and self.partitions.is_offline(topic, index):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def find_leader(self, topic: str | bytes, index: int, current_leader_epoch: int = -1) -> Partition:
        """The partition, if this broker leads it in the leader epoch of the client (-1: not given)."""
        partition = self.find(topic, index)
        error = partition.replica.leader_error(current_leader_epoch)
        if error is not None:
            raise KafkaError(error)
        return partition

    def find_replica(self, topic: str | bytes, index: int, current_leader_epoch: int = -1) -> Partition:
        """The partition, led or followed here, in the leader epoch of the client (-1: not given)."""
        partition = self.find(topic, index)
        error = partition.replica.replica_error(current_leader_epoch)
        if error is not None:
            raise KafkaError(error)
        return partition

    def known_leader(self, topic: str | bytes, index: int) -> tuple[int, int]:
        """(leader id, leader epoch) by the newest metadata; (-1, -1) if it has no such partition (KIP-951)."""
        topics = self.metadata.image.topics
        image = topics.by_id.get(topic) if isinstance(topic, bytes) else topics.by_name.get(topic)
        placed = None if image is None else image.partitions.get(index)
        return (NO_LEADER, -1) if placed is None else (placed.leader, placed.leader_epoch)
