"""One request for each API of the coordinators, in each version: (version, topic id) to the message."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.schema import Message

TOPIC = "events"
GROUP = "g"
TRANSACTION = "x"
MEMBER = "m"

Asking = Callable[[int, bytes], Message]


def offset_commit(version: int, topic_id: bytes) -> Message:
    topic = OffsetCommitRequestTopic(
        partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    )
    if version >= 10:
        topic.topic_id = topic_id
    else:
        topic.name = TOPIC
    return OffsetCommitRequest(group_id=GROUP, topics=[topic])


def offset_fetch(version: int, topic_id: bytes) -> Message:
    if version < 8:
        return OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])])
    topic = OffsetFetchRequestTopics(partition_indexes=[0])
    if version >= 10:
        topic.topic_id = topic_id
    else:
        topic.name = TOPIC
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])


def join_group(version: int, _topic_id: bytes) -> Message:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000 if version >= 1 else -1,
        member_id=MEMBER,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def sync_group(version: int, _topic_id: bytes) -> Message:
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=MEMBER,
        assignments=[SyncGroupRequestAssignment(member_id=MEMBER, assignment=b"")],
    )
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return request


def leave_group(version: int, _topic_id: bytes) -> Message:
    if version < 3:
        return LeaveGroupRequest(group_id=GROUP, member_id=MEMBER)
    return LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=MEMBER)])


def add_partitions(version: int, _topic_id: bytes) -> Message:
    topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTION, producer_id=1, producer_epoch=0, topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def markers(_version: int, _topic_id: bytes) -> Message:
    marker = WritableTxnMarker(
        producer_id=1, topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])], transaction_result=True
    )
    return WriteTxnMarkersRequest(markers=[marker])


def txn_offset_commit(_version: int, _topic_id: bytes) -> Message:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id=GROUP,
        producer_id=1,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def always(request: Message) -> Asking:
    return lambda _version, _topic_id: request


OF_GROUPS: dict[ApiKey, Asking] = {
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.HEARTBEAT: always(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=MEMBER)),
    ApiKey.LEAVE_GROUP: leave_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.DESCRIBE_GROUPS: always(DescribeGroupsRequest(groups=[GROUP])),
    ApiKey.LIST_GROUPS: always(ListGroupsRequest()),
    ApiKey.DELETE_GROUPS: always(DeleteGroupsRequest(groups_names=["none"])),
    ApiKey.OFFSET_DELETE: always(
        OffsetDeleteRequest(
            group_id=GROUP,
            topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        )
    ),
}

OF_CONSUMER_GROUPS: dict[ApiKey, Asking] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: always(
        ConsumerGroupHeartbeatRequest(
            group_id="c",
            member_id=MEMBER,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: always(ConsumerGroupDescribeRequest(group_ids=["c"])),
}

OF_TRANSACTIONS: dict[ApiKey, Asking] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: always(
        AddOffsetsToTxnRequest(transactional_id=TRANSACTION, producer_id=1, group_id=GROUP)
    ),
    ApiKey.END_TXN: always(EndTxnRequest(transactional_id=TRANSACTION, producer_id=1, committed=True)),
    ApiKey.WRITE_TXN_MARKERS: markers,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: always(DescribeTransactionsRequest(transactional_ids=[TRANSACTION])),
    ApiKey.LIST_TRANSACTIONS: always(ListTransactionsRequest()),
}
