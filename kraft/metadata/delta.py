"""`MetadataDelta`: the changes made by a run of metadata records, for brokers above all.

Every collection is a dict in the order in which things were first touched, so acting on one replays alike in
a simulation. Knows nothing of records: `replay.py` fills it in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.kraft.metadata.image import (
    BrokerImage,
    ConfigResource,
    ControllerImage,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
)

if TYPE_CHECKING:
    from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord


@dataclass(slots=True)
class TopicDelta:
    """A topic that is new or has changed partitions."""

    id: bytes
    name: str
    before: TopicImage | None
    """None for a new topic."""
    after: TopicImage
    changed_partitions: dict[int, PartitionImage] = field(default_factory=dict)
    """The new state of each partition that was created or changed."""

    def previous(self, partition_id: int) -> PartitionImage | None:
        """The partition as it was, None if it is new."""
        return None if self.before is None else self.before.partitions.get(partition_id)


@dataclass(slots=True)
class MetadataDelta:
    """The way from `before` to `after`."""

    before: MetadataImage
    after: MetadataImage
    changed_topics: dict[bytes, TopicDelta] = field(default_factory=dict)
    """New and changed topics of `after` by id. A topic deleted and created again is here under its new id
    only."""
    deleted_topics: dict[bytes, TopicImage] = field(default_factory=dict)
    """Topics of `before` that are gone, by id, as they were."""
    changed_brokers: dict[int, BrokerImage | None] = field(default_factory=dict)
    """Registered, changed, or (None) unregistered."""
    fenced_on_evidence: dict[int, None] = field(default_factory=dict)
    """Brokers whose process was seen to be gone, before their session ended."""
    changed_controllers: dict[int, ControllerImage | None] = field(default_factory=dict)
    """Registered or changed; None only when a snapshot lacks a controller that was there."""
    changed_configs: dict[ConfigResource, dict[str, str | None]] = field(default_factory=dict)
    """The keys that were written and their new values, None where the override is gone."""
    changed_features: dict[str, int] = field(default_factory=dict)
    """Features with a new level, metadata.version among them."""
    changed_quotas: dict[QuotaEntity, dict[str, float] | None] = field(default_factory=dict)
    """The quotas of each entity that has others than before, all of them; None if it has none now."""
    producer_ids_changed: bool = False
    changed_acls: dict[bytes, AccessControlEntryRecord | None] = field(default_factory=dict)
    """ACLs by id; None for those that are gone."""
    is_of_snapshot: bool = False
    """True if a snapshot replaced the image: what it lacks may be unknown to it, not deleted (a restored backup)."""
    others_changed: bool = False
    """Something among ACLs, SCRAM credentials, quotas or delegation tokens is different."""

    @property
    def interrupted_brokers(self) -> list[int]:
        """Brokers that were fenced, restarted or unregistered. They may never answer earlier requests: a broker that
        loses its power closes no connection."""
        found = []
        for broker_id, broker in self.changed_brokers.items():
            before = self.before.cluster.brokers.get(broker_id)
            if before is None:
                continue
            if broker is None or broker.epoch != before.epoch or (broker.fenced and not before.fenced):
                found.append(broker_id)
        return found

    @property
    def is_empty(self) -> bool:
        """Nothing but the offset moved on."""
        return not (
            self.changed_topics
            or self.deleted_topics
            or self.changed_brokers
            or self.changed_controllers
            or self.changed_configs
            or self.changed_features
            or self.producer_ids_changed
            or self.others_changed
        )
