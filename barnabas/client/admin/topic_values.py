"""Topics and partitions as an administrator is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.admin.acl_values import AclOperation
from barnabas.client.admin.config_values import ConfigEntry


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made. -1 takes the cluster's default; `replica_assignments` (partition to brokers, the preferred
    leader first) takes the place of both numbers.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic shall have; `assignments` are the brokers of each that is added."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What a topic was made as. Numbers are -1 and `configs` None if the cluster may not tell, or is too old."""

    name: str
    topic_id: str | None
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, ConfigEntry] | None


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    topic_id: str | None
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """A partition. Brokers are told by their ids; replicas in the order of assignment, the preferred leader first."""

    partition: int
    leader: int | None
    """None while nobody leads."""
    leader_epoch: int
    """-1 if an old broker does not tell."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    elr: tuple[int, ...] | None
    """Eligible leader replicas (KIP-966); None if the cluster does not tell."""
    last_known_elr: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[TopicPartitionInfo, ...]
    """By number."""
    authorized_operations: tuple[AclOperation, ...] | None
    """None unless it was asked for, or without an authorizer that knows."""
