"""One request for each API of share groups: (version, topic id) to the message."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    write_share_group_state,
)
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.schema import Message
from tests.broker.apis.coordinator_questions import MEMBER, TOPIC, Asking, always

GROUP = "shared"


def initialize(_version: int, topic_id: bytes) -> Message:
    topic = initialize_share_group_state.InitializeStateData(
        topic_id=topic_id, partitions=[initialize_share_group_state.PartitionData(partition=0)]
    )
    return initialize_share_group_state.InitializeShareGroupStateRequest(group_id=GROUP, topics=[topic])


def read(_version: int, topic_id: bytes) -> Message:
    topic = read_share_group_state.ReadStateData(
        topic_id=topic_id, partitions=[read_share_group_state.PartitionData(partition=0)]
    )
    return read_share_group_state.ReadShareGroupStateRequest(group_id=GROUP, topics=[topic])


def write(_version: int, topic_id: bytes) -> Message:
    topic = write_share_group_state.WriteStateData(
        topic_id=topic_id, partitions=[write_share_group_state.PartitionData(partition=0)]
    )
    return write_share_group_state.WriteShareGroupStateRequest(group_id=GROUP, topics=[topic])


def delete(_version: int, topic_id: bytes) -> Message:
    topic = delete_share_group_state.DeleteStateData(
        topic_id=topic_id, partitions=[delete_share_group_state.PartitionData(partition=0)]
    )
    return delete_share_group_state.DeleteShareGroupStateRequest(group_id=GROUP, topics=[topic])


def summary(_version: int, topic_id: bytes) -> Message:
    topic = read_share_group_state_summary.ReadStateSummaryData(
        topic_id=topic_id, partitions=[read_share_group_state_summary.PartitionData(partition=0)]
    )
    return read_share_group_state_summary.ReadShareGroupStateSummaryRequest(group_id=GROUP, topics=[topic])


def fetch(_version: int, topic_id: bytes) -> Message:
    topic = share_fetch.FetchTopic(topic_id=topic_id, partitions=[share_fetch.FetchPartition(partition_index=0)])
    return share_fetch.ShareFetchRequest(group_id=GROUP, member_id=MEMBER, max_records=10, topics=[topic])


def acknowledge(version: int, topic_id: bytes) -> Message:
    batch = share_acknowledge.AcknowledgementBatch(first_offset=0, last_offset=9, acknowledge_types=[1])
    partition = share_acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    topic = share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=GROUP, member_id=MEMBER, share_session_epoch=version, topics=[topic]
    )


OF_SHARE_GROUPS: dict[ApiKey, Asking] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: always(
        ShareGroupHeartbeatRequest(group_id=GROUP, member_id=MEMBER, subscribed_topic_names=[TOPIC])
    ),
    ApiKey.SHARE_FETCH: fetch,
    ApiKey.SHARE_ACKNOWLEDGE: acknowledge,
    ApiKey.SHARE_GROUP_DESCRIBE: always(ShareGroupDescribeRequest(group_ids=[GROUP])),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: always(
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=[describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
        )
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: always(
        alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id=GROUP,
            topics=[alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC)],
        )
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: always(
        delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            group_id=GROUP, topics=[delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
        )
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: initialize,
    ApiKey.READ_SHARE_GROUP_STATE: read,
    ApiKey.WRITE_SHARE_GROUP_STATE: write,
    ApiKey.DELETE_SHARE_GROUP_STATE: delete,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: summary,
}
