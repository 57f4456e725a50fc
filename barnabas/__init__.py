"""Barnabas: the client, clusters on this machine and for tests, the command line.

    from barnabas import Admin, Consumer, Producer, ShareConsumer, aio, errors, sync

The names here are imported at their first use, so that `import barnabas` is cheap. It raises ImportError, in one line,
if our packages are hidden behind others of the same names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas import aio, sync
    from barnabas.client import errors
    from barnabas.client.admin import (
        AbortTransactionSpec,
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AclResourceType,
        Admin,
        AlterConfigOp,
        ApiVersion,
        BrokerNode,
        ClassicGroupDescription,
        ClassicMember,
        ClientQuotaEntity,
        ClientQuotaFilter,
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        ConfigSynonym,
        ConfigType,
        ConsumerGroupDescription,
        CreatedTopic,
        DelegationToken,
        DeletedRecords,
        ElectionType,
        Endpoint,
        FeatureMetadata,
        FeatureUpdate,
        FinalizedVersionRange,
        GroupListing,
        GroupState,
        GroupType,
        KafkaPrincipal,
        LogDirDescription,
        Match,
        MemberDescription,
        MemberToRemove,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        OpType,
        PartitionReassignment,
        PatternType,
        ProducerIdAndEpoch,
        ProducerState,
        QuorumInfo,
        ReplicaInfo,
        ReplicaLogDirInfo,
        ReplicaState,
        ResourceType,
        Results,
        ScramCredentialInfo,
        ScramMechanism,
        ShareGroupDescription,
        ShareMemberDescription,
        SharePartitionOffset,
        StreamsAssignment,
        StreamsGroupDescription,
        StreamsMemberDescription,
        StreamsSubtopology,
        StreamsTopicInfo,
        SupportedVersionRange,
        TopicDescription,
        TopicListing,
        TopicPartitionInfo,
        TopicPartitionReplica,
        TransactionDescription,
        TransactionListing,
        TransactionState,
        UpgradeType,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.listener import RebalanceListener
    from barnabas.client.consumer.record import ConsumerRecord, TimestampType
    from barnabas.client.groups.membership import ConsumerGroupMetadata
    from barnabas.client.interceptors import ProducerRecord
    from barnabas.client.metadata import TopicPartition
    from barnabas.client.offsets import OffsetAndMetadata, OffsetAndTimestamp
    from barnabas.client.producer.delivery_time import delivery_header
    from barnabas.client.producer.future import FutureRecordMetadata
    from barnabas.client.producer.partitioner import Partitioner, RoundRobinPartitioner
    from barnabas.client.producer.prepared_state import PreparedTxnState
    from barnabas.client.producer.producer import Producer
    from barnabas.client.producer.record_metadata import Acked, Failed, RecordMetadata, Unknown
    from barnabas.client.shares.acknowledgements import Acknowledged
    from barnabas.client.shares.record import ShareRecord
    from barnabas.client.shares.share_consumer import ShareConsumer
    from barnabas.dev.embedded import embedded
    from barnabas.fault_proxy.embedded import proxy
    from barnabas.protocol.acknowledge_type import AcknowledgeType

    __version__: str

_MODULES = {"aio": "barnabas.aio", "errors": "barnabas.client.errors", "sync": "barnabas.sync"}
_NAMES = {
    "barnabas.client.metadata": ("TopicPartition",),
    "barnabas.client.consumer.consumer": ("Consumer",),
    "barnabas.client.consumer.listener": ("RebalanceListener",),
    "barnabas.client.consumer.record": (
        "ConsumerRecord",
        "TimestampType",
    ),
    "barnabas.client.groups.membership": ("ConsumerGroupMetadata",),
    "barnabas.client.interceptors": ("ProducerRecord",),
    "barnabas.client.producer.delivery_time": ("delivery_header",),
    "barnabas.client.offsets": (
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
    ),
    "barnabas.client.producer.future": ("FutureRecordMetadata",),
    "barnabas.client.producer.partitioner": ("Partitioner", "RoundRobinPartitioner"),
    "barnabas.client.producer.producer": ("Producer",),
    "barnabas.client.producer.prepared_state": ("PreparedTxnState",),
    "barnabas.client.producer.record_metadata": ("Acked", "Failed", "RecordMetadata", "Unknown"),
    "barnabas.client.shares.acknowledgements": ("Acknowledged",),
    "barnabas.client.shares.record": ("ShareRecord",),
    "barnabas.client.shares.share_consumer": ("ShareConsumer",),
    "barnabas.dev.embedded": ("embedded",),
    "barnabas.fault_proxy.embedded": ("proxy",),
    "barnabas.protocol.acknowledge_type": ("AcknowledgeType",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_HOME_OF_THE_REST = "barnabas.client.admin"
"""Module of the names in `__all__` that `_NAMES` does not have."""

__all__ = [
    "AbortTransactionSpec",
    "Acked",
    "AcknowledgeType",
    "Acknowledged",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "Admin",
    "AlterConfigOp",
    "ApiVersion",
    "BrokerNode",
    "ClassicGroupDescription",
    "ClassicMember",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CreatedTopic",
    "DelegationToken",
    "DeletedRecords",
    "ElectionType",
    "Endpoint",
    "Failed",
    "FeatureMetadata",
    "FeatureUpdate",
    "FinalizedVersionRange",
    "FutureRecordMetadata",
    "GroupListing",
    "GroupState",
    "GroupType",
    "KafkaPrincipal",
    "LogDirDescription",
    "Match",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "OpType",
    "PartitionReassignment",
    "Partitioner",
    "PatternType",
    "PreparedTxnState",
    "Producer",
    "ProducerIdAndEpoch",
    "ProducerRecord",
    "ProducerState",
    "QuorumInfo",
    "RebalanceListener",
    "RecordMetadata",
    "ReplicaInfo",
    "ReplicaLogDirInfo",
    "ReplicaState",
    "ResourceType",
    "Results",
    "RoundRobinPartitioner",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ShareConsumer",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "ShareRecord",
    "StreamsAssignment",
    "StreamsGroupDescription",
    "StreamsMemberDescription",
    "StreamsSubtopology",
    "StreamsTopicInfo",
    "SupportedVersionRange",
    "TimestampType",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "Unknown",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "aio",
    "delivery_header",
    "embedded",
    "errors",
    "proxy",
    "sync",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        found: object = import_module(_MODULES[name])
    elif name == "__version__":
        found = import_module("barnabas.runtime.version").version()
    elif name in __all__:
        found = getattr(import_module(_HOMES.get(name, _HOME_OF_THE_REST)), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
