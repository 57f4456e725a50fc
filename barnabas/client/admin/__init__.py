"""The administrator, its parameters and results.

`Admin` (`admin.py`) is composed of one class for each subject: `topics.py`, `partitions.py`, `configs.py`,
`brokers.py`, `log_dirs.py`, `groups.py`, `any_groups.py`, `group_offsets.py`, `share_offsets.py`, `group_lags.py`,
`transactions.py`, `acls.py`, `quotas.py`, `scram.py`, `tokens.py`. All of them send requests through `calls.py` to the
brokers that `routes.py` chooses, and return `Results`.
"""

from barnabas.client.admin.acl_values import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.any_groups import GroupDescription
from barnabas.client.admin.brokers import (
    ApiVersion,
    BrokerNode,
    ClusterDescription,
    Endpoint,
    FeatureMetadata,
    FeatureUpdate,
    FinalizedVersionRange,
    QuorumInfo,
    ReplicaState,
    SupportedVersionRange,
    UpgradeType,
)
from barnabas.client.admin.config_values import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    OpType,
    ResourceType,
)
from barnabas.client.admin.group_lags import PartitionLag
from barnabas.client.admin.group_values import (
    ClassicGroupDescription,
    ClassicMember,
    ConsumerGroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    ShareGroupDescription,
    ShareMemberDescription,
)
from barnabas.client.admin.groups import MemberToRemove
from barnabas.client.admin.log_dirs import (
    LogDirDescription,
    ReplicaInfo,
    ReplicaLogDirInfo,
    TopicPartitionReplica,
)
from barnabas.client.admin.partitions import DeletedRecords, ElectionType, OffsetSpec, PartitionReassignment
from barnabas.client.admin.quotas import ClientQuotaEntity, ClientQuotaFilter, Match
from barnabas.client.admin.results import Results
from barnabas.client.admin.scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from barnabas.client.admin.settings import AdminOptions, AdminSettings
from barnabas.client.admin.share_offsets import SharePartitionOffset
from barnabas.client.admin.streams_values import (
    StreamsAssignment,
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsSubtopology,
    StreamsTopicInfo,
)
from barnabas.client.admin.tokens import DelegationToken, KafkaPrincipal
from barnabas.client.admin.topic_values import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicDescription,
    TopicListing,
    TopicPartitionInfo,
)
from barnabas.client.admin.transactions import (
    AbortTransactionSpec,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)

__all__ = [
    "AbortTransactionSpec",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "Admin",
    "AdminOptions",
    "AdminSettings",
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
    "ConsumerGroupDescription",
    "CreatedTopic",
    "DelegationToken",
    "DeletedRecords",
    "ElectionType",
    "Endpoint",
    "FeatureMetadata",
    "FeatureUpdate",
    "FinalizedVersionRange",
    "GroupDescription",
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
    "OffsetSpec",
    "OpType",
    "PartitionLag",
    "PartitionReassignment",
    "PatternType",
    "ProducerIdAndEpoch",
    "ProducerState",
    "QuorumInfo",
    "ReplicaInfo",
    "ReplicaLogDirInfo",
    "ReplicaState",
    "ResourceType",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "StreamsAssignment",
    "StreamsGroupDescription",
    "StreamsMemberDescription",
    "StreamsSubtopology",
    "StreamsTopicInfo",
    "SupportedVersionRange",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
