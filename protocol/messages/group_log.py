"""Keys and values of `__consumer_offsets`. The version that leads a key is the record type (`API_KEY`)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
    struct,
)


class LegacyOffsetCommitKey(Message, api_key=0, versions="0"):
    """Key of a committed offset, oldest form: group, topic, partition. Version 0."""

    group: str = field(STRING, "0", default="")
    topic: str = field(STRING, "0", default="")
    partition: int = field(INT32, "0", default=0)


class LegacyOffsetCommitValue(Message, api_key=0, versions="0"):
    """A committed offset, oldest form. Version 0."""

    offset: int = field(INT64, "0", default=0)
    metadata: str = field(STRING, "0", default="")
    commit_timestamp: int = field(INT64, "0", default=0)


class OffsetCommitKey(Message, api_key=1, versions="0"):
    """Key of a committed offset: group, topic, partition. Version 0."""

    group: str = field(STRING, "0", default="")
    topic: str = field(STRING, "0", default="")
    partition: int = field(INT32, "0", default=0)


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+"):
    """A committed offset (KIP-211, KIP-320, KIP-848). Versions 0 to 4; flexible from 4."""

    offset: int = field(INT64, "0+", default=0)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING, "0+", default="")
    commit_timestamp: int = field(INT64, "0+", default=0)
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(Message, api_key=2, versions="0"):
    """Key of a classic group. Version 0."""

    group: str = field(STRING, "0", default="")


class MemberMetadata(Struct):
    member_id: str = field(STRING, "0+", default="")
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+", ignorable=True)
    client_id: str = field(STRING, "0+", default="")
    client_host: str = field(STRING, "0+", default="")
    rebalance_timeout: int = field(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32, "0+", default=0)
    subscription: bytes = field(BYTES, "0+", default=b"")
    assignment: bytes = field(BYTES, "0+", default=b"")


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+"):
    """A classic group: generation, protocol and members with their subscription and assignment. Versions 0
    to 4; flexible from 4."""

    protocol_type: str = field(STRING, "0+", default="")
    generation: int = field(INT32, "0+", default=0)
    protocol: str | None = field(STRING, "0+", default="", nullable="0+")
    leader: str | None = field(STRING, "0+", default="", nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(array(MemberMetadata), "0+", factory=list)


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    """Key (group) of a consumer group (KIP-848). Version 0."""

    group_id: str = field(STRING, "0", default="")


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    """A consumer group: its epoch (KIP-848). Version 0; flexible."""

    epoch: int = field(INT32, "0+", default=0)
    metadata_hash: int = field(INT64, "0+", default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    """Key (group) of the partition counts a consumer group knew; no longer written (KIP-848). Version 0."""

    group_id: str = field(STRING, "0", default="")


class PartitionMetadata(Struct):
    partition: int = field(INT32, "0+", default=0)
    racks: list[str] = field(array(STRING), "0+", factory=list)


class TopicMetadata(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    topic_name: str = field(STRING, "0+", default="")
    num_partitions: int = field(INT32, "0+", default=0)
    partition_metadata: list[PartitionMetadata] = field(array(PartitionMetadata), "0+", factory=list)


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    """The partition counts a consumer group knew; no longer written (KIP-848). Version 0; flexible."""

    topics: list[TopicMetadata] = field(array(TopicMetadata), "0+", factory=list)


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    """Key (group, member) of a member of a consumer group (KIP-848). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class ClassicProtocol(Struct):
    name: str = field(STRING, "0+", default="")
    metadata: bytes = field(BYTES, "0+", default=b"")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32, "0+", default=0)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol), "0+", factory=list)


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    """A member of a consumer group (KIP-848). Version 0; flexible."""

    instance_id: str | None = field(STRING, "0+", default="", nullable="0+")
    rack_id: str | None = field(STRING, "0+", default="", nullable="0+")
    client_id: str = field(STRING, "0+", default="")
    client_host: str = field(STRING, "0+", default="")
    subscribed_topic_names: list[str] = field(array(STRING), "0+", factory=list)
    subscribed_topic_regex: str | None = field(STRING, "0+", default="", nullable="0+")
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    server_assignor: str | None = field(STRING, "0+", default="", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        struct(ClassicMemberMetadata), "0+", factory=ClassicMemberMetadata, nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    """Key (group) of the epoch of the target assignment of a consumer group (KIP-848). Version 0."""

    group_id: str = field(STRING, "0", default="")


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    """The epoch of the target assignment of a consumer group (KIP-848). Version 0; flexible."""

    assignment_epoch: int = field(INT32, "0+", default=0)
    assignment_timestamp: int = field(INT64, "0+", default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    """Key (group, member) of the target assignment of one member of a consumer group (KIP-848). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class TopicPartition(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    """The target assignment of one member of a consumer group (KIP-848). Version 0; flexible."""

    topic_partitions: list[TopicPartition] = field(array(TopicPartition), "0+", factory=list)


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    """Key (group, member) of the current assignment of a member of a consumer group (KIP-848). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class ConsumerGroupCurrentMemberAssignmentTopicPartitions(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[int] = field(array(INT32), "0+", factory=list)
    assignment_epochs: list[int] | None = field(array(INT32), "0+", factory=list, nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    """The current assignment of a member of a consumer group (KIP-848). Version 0; flexible."""

    member_epoch: int = field(INT32, "0+", default=0)
    previous_member_epoch: int = field(INT32, "0+", default=0)
    state: int = field(INT8, "0+", default=0)
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions] = field(
        array(ConsumerGroupCurrentMemberAssignmentTopicPartitions), "0+", factory=list
    )
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions] = field(
        array(ConsumerGroupCurrentMemberAssignmentTopicPartitions), "0+", factory=list
    )


class ShareGroupMemberMetadataKey(Message, api_key=10, versions="0"):
    """Key (group, member) of a member of a share group (KIP-932). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class ShareGroupMemberMetadataValue(Message, api_key=10, versions="0", flexible="0+"):
    """A member of a share group (KIP-932). Version 0; flexible."""

    rack_id: str | None = field(STRING, "0+", default="", nullable="0+")
    client_id: str = field(STRING, "0+", default="")
    client_host: str = field(STRING, "0+", default="")
    subscribed_topic_names: list[str] = field(array(STRING), "0+", factory=list)


class ShareGroupMetadataKey(Message, api_key=11, versions="0"):
    """Key (group) of a share group (KIP-932). Version 0."""

    group_id: str = field(STRING, "0", default="")


class ShareGroupMetadataValue(Message, api_key=11, versions="0", flexible="0+"):
    """A share group: its epoch (KIP-932). Version 0; flexible."""

    epoch: int = field(INT32, "0+", default=0)
    metadata_hash: int = field(INT64, "0+", default=0)


class ShareGroupTargetAssignmentMetadataKey(Message, api_key=12, versions="0"):
    """Key (group) of the epoch of the target assignment of a share group (KIP-932). Version 0."""

    group_id: str = field(STRING, "0", default="")


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, versions="0", flexible="0+"):
    """The epoch of the target assignment of a share group (KIP-932). Version 0; flexible."""

    assignment_epoch: int = field(INT32, "0+", default=0)
    assignment_timestamp: int = field(INT64, "0+", default=0, tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, api_key=13, versions="0"):
    """Key (group, member) of the target assignment of one member of a share group (KIP-932). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, versions="0", flexible="0+"):
    """The target assignment of one member of a share group (KIP-932). Version 0; flexible."""

    topic_partitions: list[TopicPartition] = field(array(TopicPartition), "0+", factory=list)


class ShareGroupCurrentMemberAssignmentKey(Message, api_key=14, versions="0"):
    """Key (group, member) of the current assignment of a member of a share group (KIP-932). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class ShareGroupCurrentMemberAssignmentTopicPartitions(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, versions="0", flexible="0+"):
    """The current assignment of a member of a share group (KIP-932). Version 0; flexible."""

    member_epoch: int = field(INT32, "0+", default=0)
    previous_member_epoch: int = field(INT32, "0+", default=0)
    state: int = field(INT8, "0+", default=0)
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentTopicPartitions] = field(
        array(ShareGroupCurrentMemberAssignmentTopicPartitions), "0+", factory=list
    )


class ShareGroupStatePartitionMetadataKey(Message, api_key=15, versions="0"):
    """Key (group) of the topics whose share state is being initialized, is there, or is being deleted, of a
    share group (KIP-932). Version 0."""

    group_id: str = field(STRING, "0", default="")


class TopicPartitionsInfo(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    topic_name: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class ShareGroupStatePartitionMetadataTopicInfo(Struct):
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    topic_name: str = field(STRING, "0+", default="")


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, versions="0", flexible="0+"):
    """The topics whose share state is being initialized, is there, or is being deleted, of a share group
    (KIP-932). Version 0; flexible."""

    initializing_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo), "0+", factory=list)
    initialized_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo), "0+", factory=list)
    deleting_topics: list[ShareGroupStatePartitionMetadataTopicInfo] = field(
        array(ShareGroupStatePartitionMetadataTopicInfo), "0+", factory=list
    )


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    """Key (group, regex) of what a topic pattern of a consumer group resolved to (KIP-848). Version 0."""

    group_id: str = field(STRING, "0", default="")
    regular_expression: str = field(STRING, "0", default="")


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    """The topics that a pattern of a consumer group matches (KIP-848). Version 0; flexible."""

    topics: list[str] = field(array(STRING), "0+", factory=list)
    version: int = field(INT64, "0+", default=0)
    timestamp: int = field(INT64, "0+", default=0)


class StreamsGroupMetadataKey(Message, api_key=17, versions="0"):
    """Key (group) of a streams group (KIP-1071). Version 0."""

    group_id: str = field(STRING, "0", default="")


class LastAssignmentConfig(Struct):
    key: str = field(STRING, "0+", default="")
    value: str = field(STRING, "0+", default="")


class StreamsGroupMetadataValue(Message, api_key=17, versions="0", flexible="0+"):
    """A streams group: its epoch (KIP-1071). Version 0; flexible."""

    epoch: int = field(INT32, "0+", default=0)
    metadata_hash: int = field(INT64, "0+", default=0)
    validated_topology_epoch: int = field(INT32, "0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        array(LastAssignmentConfig), "0+", factory=list, nullable="0+", tag=1
    )


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions="0"):
    """Key (group, member) of a member of a streams group (KIP-1071). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class Endpoint(Struct):
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)


class KeyValue(Struct):
    key: str = field(STRING, "0+", default="")
    value: str = field(STRING, "0+", default="")


class StreamsGroupMemberMetadataValue(Message, api_key=19, versions="0", flexible="0+"):
    """A member of a streams group (KIP-1071). Version 0; flexible."""

    instance_id: str | None = field(STRING, "0+", default="", nullable="0+")
    rack_id: str | None = field(STRING, "0+", default="", nullable="0+")
    client_id: str = field(STRING, "0+", default="")
    client_host: str = field(STRING, "0+", default="")
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    topology_epoch: int = field(INT32, "0+", default=0)
    process_id: str = field(STRING, "0+", default="")
    user_endpoint: Endpoint | None = field(struct(Endpoint), "0+", default=None, nullable="0+")
    client_tags: list[KeyValue] = field(array(KeyValue), "0+", factory=list)


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions="0"):
    """Key (group) of the epoch of the target assignment of a streams group (KIP-1071). Version 0."""

    group_id: str = field(STRING, "0", default="")


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions="0", flexible="0+"):
    """The epoch of the target assignment of a streams group (KIP-1071). Version 0; flexible."""

    assignment_epoch: int = field(INT32, "0+", default=0)
    assignment_timestamp: int = field(INT64, "0+", default=0, tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions="0"):
    """Key (group, member) of the target assignment of one member of a streams group (KIP-1071). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class StreamsGroupTargetAssignmentMemberTaskIds(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, versions="0", flexible="0+"):
    """The target assignment of one member of a streams group (KIP-1071). Version 0; flexible."""

    active_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = field(
        array(StreamsGroupTargetAssignmentMemberTaskIds), "0+", factory=list
    )
    standby_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = field(
        array(StreamsGroupTargetAssignmentMemberTaskIds), "0+", factory=list
    )
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = field(
        array(StreamsGroupTargetAssignmentMemberTaskIds), "0+", factory=list
    )


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions="0"):
    """Key (group, member) of the current assignment of a member of a streams group (KIP-1071). Version 0."""

    group_id: str = field(STRING, "0", default="")
    member_id: str = field(STRING, "0", default="")


class StreamsGroupCurrentMemberAssignmentTaskIds(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    partitions: list[int] = field(array(INT32), "0+", factory=list)
    assignment_epochs: list[int] | None = field(array(INT32), "0+", factory=list, nullable="0+", tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions="0", flexible="0+"):
    """The current assignment of a member of a streams group (KIP-1071). Version 0; flexible."""

    member_epoch: int = field(INT32, "0+", default=0)
    previous_member_epoch: int = field(INT32, "0+", default=0)
    state: int = field(INT8, "0+", default=0)
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentTaskIds), "0+", factory=list
    )
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentTaskIds), "0+", factory=list
    )
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentTaskIds), "0+", factory=list
    )
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentTaskIds), "0+", factory=list
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentTaskIds), "0+", factory=list
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentTaskIds), "0+", factory=list
    )


class StreamsGroupTopologyKey(Message, api_key=23, versions="0"):
    """Key (group) of the topology of a streams group (KIP-1071). Version 0."""

    group_id: str = field(STRING, "0", default="")


class TopicConfig(Struct):
    key: str = field(STRING, "0+", default="")
    value: str = field(STRING, "0+", default="")


class StreamsGroupTopologyTopicInfo(Struct):
    name: str = field(STRING, "0+", default="")
    partitions: int = field(INT32, "0+", default=0)
    replication_factor: int = field(INT16, "0+", default=0)
    topic_configs: list[TopicConfig] = field(array(TopicConfig), "0+", factory=list)


class CopartitionGroup(Struct):
    source_topics: list[int] = field(array(INT16), "0+", factory=list)
    source_topic_regex: list[int] = field(array(INT16), "0+", factory=list)
    repartition_source_topics: list[int] = field(array(INT16), "0+", factory=list)


class Subtopology(Struct):
    subtopology_id: str = field(STRING, "0+", default="")
    source_topics: list[str] = field(array(STRING), "0+", factory=list)
    source_topic_regex: list[str] = field(array(STRING), "0+", factory=list)
    state_changelog_topics: list[StreamsGroupTopologyTopicInfo] = field(
        array(StreamsGroupTopologyTopicInfo), "0+", factory=list
    )
    repartition_sink_topics: list[str] = field(array(STRING), "0+", factory=list)
    repartition_source_topics: list[StreamsGroupTopologyTopicInfo] = field(
        array(StreamsGroupTopologyTopicInfo), "0+", factory=list
    )
    copartition_groups: list[CopartitionGroup] = field(array(CopartitionGroup), "0+", factory=list)


class StreamsGroupTopologyValue(Message, api_key=23, versions="0", flexible="0+"):
    """The topology of a streams group (KIP-1071). Version 0; flexible."""

    epoch: int = field(INT32, "0+", default=0)
    subtopologies: list[Subtopology] = field(array(Subtopology), "0+", factory=list)
