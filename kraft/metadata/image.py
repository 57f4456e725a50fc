"""`MetadataImage`: the immutable picture of the cluster that the metadata log adds up to.

Images never change. A later one shares every part that the records between them did not change, so keeping an
old image costs little and comparing two starts with `is`. The dicts inside are plain for speed: nothing
changes one after the image was built (`replay.py` copies before it writes). Nothing here knows how records
become images, who decides on them, or how they travel.

The words are those of KIP-500 and KIP-631; directories KIP-858, eligible leader replicas KIP-966.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.metadata_log import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""The leader field of a PartitionChangeRecord that leaves leader and leader epoch as they are."""

LEADER_RECOVERED = 0
LEADER_RECOVERING = 1
"""The leader was elected outside the ISR and has to check its state before others may join (KIP-704)."""
LEADER_RECOVERY_NO_CHANGE = -1

MIGRATING_DIRECTORY = bytes(16)
"""A replica in a directory that no broker has reported."""
UNASSIGNED_DIRECTORY = (1).to_bytes(16, "big")
"""A replica that its broker has not placed in a directory yet."""
LOST_DIRECTORY = (2).to_bytes(16, "big")
"""A replica whose directory went offline before its broker reported the directory."""

MINIMUM_METADATA_VERSION = 7
"""The level of a log without a metadata.version record: 3.3-IV3."""

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

ConfigResource = tuple[int, str]
"""(resource type, name); the name "" of type BROKER is the cluster's default for all brokers."""


def directory_is_reserved(directory: bytes) -> bool:
    """The first hundred ids have meanings of their own and never name a real directory."""
    return directory[:15] == bytes(15) and directory[15] < 100


def directory_is_online(directory: bytes, online: tuple[bytes, ...]) -> bool:
    """True if `directory`, which may be a reserved id, is among those that a broker named; True if it named none."""
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    if directory == LOST_DIRECTORY:
        return False
    return not online or directory in online


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a listener. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    host: str
    port: int
    security_protocol: int = 0


FeatureRange = tuple[int, int]
"""The lowest and the highest level of a feature that a node can work with."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker, alive or not."""

    id: int
    epoch: int
    incarnation_id: bytes
    listeners: dict[str, Endpoint]
    features: dict[str, FeatureRange]
    rack: str | None = None
    host: str | None = None
    """The machine that it shares with other brokers; None: it is alone on its machine."""
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_directories: tuple[bytes, ...] = ()
    """The directories that are online."""
    cordoned_log_directories: tuple[bytes, ...] = ()
    """Online directories that take no new replicas (KIP-1066)."""

    @property
    def active(self) -> bool:
        """May lead and be in an ISR: neither fenced nor in controlled shutdown."""
        return not (self.fenced or self.in_controlled_shutdown)

    def has_online_directory(self, directory: bytes) -> bool:
        """True if a replica in `directory` can work, as far as the broker reported."""
        return directory_is_online(directory, self.log_directories)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A controller that registered its endpoints and feature ranges (KIP-919)."""

    id: int
    incarnation_id: bytes
    listeners: dict[str, Endpoint]
    features: dict[str, FeatureRange]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All nodes that ever registered and were not unregistered."""

    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    controllers: dict[int, ControllerImage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. Invariants: `isr` and `elr` are disjoint parts of `replicas`; `leader` is in `isr` or
    NO_LEADER."""

    replicas: tuple[int, ...]
    """Assignment order; the first is the preferred leader."""
    directories: tuple[bytes, ...]
    """The log directory of each replica, in the same order."""
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    """Left the ISR while it was below min.insync.replicas, so they hold all committed records (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The last leader of a partition whose ISR is empty."""
    leader: int = NO_LEADER
    leader_recovery_state: int = LEADER_RECOVERED
    leader_epoch: int = 0
    """Grows by one with every election, also one of the same leader."""
    partition_epoch: int = 0
    """Grows by one with every change; AlterPartition compares and sets it."""

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def awaits_decision(self) -> bool:
        """True after a restore of the metadata that does not know which replica has all committed records: an operator
        decides who leads, not unclean.leader.election.enable."""
        nobody = self.leader == NO_LEADER and not (self.isr or self.elr or self.last_known_elr)
        return nobody and self.leader_recovery_state == LEADER_RECOVERING

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory_of(self, broker_id: int) -> bytes:
        """Raises ValueError if the broker holds no replica."""
        return self.directories[self.replicas.index(broker_id)]


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: bytes
    partitions: dict[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """The same `TopicImage` objects by both keys."""

    by_name: dict[str, TopicImage] = field(default_factory=dict)
    by_id: dict[bytes, TopicImage] = field(default_factory=dict)

    def partition(self, topic_name: str, partition_id: int) -> PartitionImage | None:
        topic = self.by_name.get(topic_name)
        return None if topic is None else topic.partitions.get(partition_id)


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """Levels the cluster has agreed on."""

    metadata_version: int = MINIMUM_METADATA_VERSION
    finalized: dict[str, int] = field(default_factory=dict)
    """Every other feature with a level above 0."""

    @property
    def levels(self) -> dict[str, int]:
        """All finalised levels, metadata.version among them."""
        return {"metadata.version": self.metadata_version} | self.finalized

    def level(self, name: str) -> int:
        return self.metadata_version if name == "metadata.version" else self.finalized.get(name, 0)

    @property
    def elr_enabled(self) -> bool:
        return self.finalized.get("eligible.leader.replicas.version", 0) >= 1


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    next_producer_id: int = 0
    """The first id that no block has given out yet."""


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted (type, name) pairs; the name None is the default entity of its type."""

ClientQuotas = dict[QuotaEntity, dict[str, float]]
"""Quotas by entity and key."""


AclKey = tuple[int, int, str, str, str, int, int]
"""All of an ACL but its id: resource type, pattern type, name, principal, host, operation, permission type."""


def acl_key(record: AccessControlEntryRecord) -> AclKey:
    return (
        record.resource_type,
        record.pattern_type,
        record.resource_name,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


@dataclass(frozen=True, slots=True)
class OthersImage:
    """Access rights, users and quotas: mostly the records themselves, by the key that replaces them."""

    acls: dict[bytes, AccessControlEntryRecord] = field(default_factory=dict)
    """By id."""
    acl_ids: dict[AclKey, bytes] = field(default_factory=dict, compare=False)
    """The ids of the same ACLs."""
    scram: dict[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    """By (user, mechanism)."""
    quotas: ClientQuotas = field(default_factory=dict)
    """Values by entity and quota key; `client_quotas.py` looks them up. An entity has at least one."""
    delegation_tokens: dict[str, DelegationTokenRecord] = field(default_factory=dict)
    """By token id."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """State of the cluster after the record at `offset`."""

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    """Dynamic configs by resource; resources without any override are absent."""
    producer_ids: ProducerIdsImage = field(default_factory=ProducerIdsImage)
    others: OthersImage = field(default_factory=OthersImage)

    def config(self, resource_type: int, name: str) -> dict[str, str]:
        """Dynamic settings of one resource; do not change the answer."""
        return self.configs.get((resource_type, name), {})

    def same_content(self, other: MetadataImage) -> bool:
        """Equal apart from their positions in the log."""
        return (
            self.features == other.features
            and self.cluster == other.cluster
            and self.topics == other.topics
            and self.configs == other.configs
            and self.producer_ids == other.producer_ids
            and self.others == other.others
        )


EMPTY_IMAGE = MetadataImage()
"""Before the first record."""
