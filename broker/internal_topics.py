"""The internal topics of coordinators and of tiered storage: created on first use, with Kafka's settings."""

from __future__ import annotations

from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC, RemoteMetadataSettings

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"

NEVER_TIERED = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC, REMOTE_METADATA_TOPIC})
"""Topics whose remote.storage.enable has no effect."""


def internal_topic(name: str, settings: BrokerSettings) -> CreatableTopic | None:
    """The partitions, replication factor and configs of the internal topic `name`; None for any other name."""
    if name == GROUP_TOPIC:
        return _compacted(
            name,
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            {"compression.type": "producer", "segment.bytes": str(settings.offsets_topic_segment_bytes)},
        )
    if name == TRANSACTION_TOPIC:
        return _compacted(
            name,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            {
                "compression.type": "uncompressed",
                "min.insync.replicas": str(settings.transaction_state_log_min_isr),
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
                # An unclean election could lose open transactions.
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_TOPIC:
        return _topic(
            name,
            settings.share_coordinator_state_topic_num_partitions,
            settings.share_coordinator_state_topic_replication_factor,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(settings.share_coordinator_state_topic_min_isr),
                # The coordinator deletes what it does not need.
                "retention.ms": "-1",
                "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
            },
        )
    if name == REMOTE_METADATA_TOPIC:
        return remote_metadata_topic(RemoteMetadataSettings.of(settings.raw))
    return None


def remote_metadata_topic(settings: RemoteMetadataSettings) -> CreatableTopic:
    return _topic(
        REMOTE_METADATA_TOPIC,
        settings.num_partitions,
        settings.replication_factor,
        {
            "cleanup.policy": "delete",
            "min.insync.replicas": str(settings.min_insync_replicas),
            "remote.storage.enable": "false",
            "retention.ms": str(settings.retention_ms),
        },
    )


def _compacted(name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> CreatableTopic:
    return _topic(name, partitions, replication_factor, {"cleanup.policy": "compact", **configs})


def _topic(name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in sorted(configs.items())],
    )
