"""Parameters and descriptions of topics and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.admin.acl_values import AclOperation
from barnabas.client.admin.config_values import ConfigEntry


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 takes the cluster's default; `replica_assignments` (partition to brokers, the preferred
    leader first) replaces both numbers.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """New partition count of a topic; `assignments` has the brokers of each added partition."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as it was created. Numbers are -1 and `configs` None if the cluster does not report them."""

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
    """A partition. Brokers are ids; replicas in the order of assignment, the preferred leader first."""

    partition: int
    leader: int | None
    """None without a leader."""
    leader_epoch: int
    """-1 if an old broker does not report it."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    elr: tuple[int, ...] | None
    """Eligible leader replicas (KIP-966); None if the cluster does not report them."""
    last_known_elr: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[TopicPartitionInfo, ...]
    """By number."""
    authorized_operations: tuple[AclOperation, ...] | None
    """None unless requested, and without an authorizer."""
