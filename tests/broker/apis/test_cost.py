"""Each step of a request is short, whatever the request names, and others are served between the steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio

from barnabas.broker.admission import STEPS_AT_ONCE
from barnabas.broker.apis import coordinator_reads
from barnabas.broker.groups.limits import (
    MOST_ASSIGNMENTS,
    MOST_METADATA_BYTES,
    MOST_OWNED_PARTITIONS,
    MOST_PROTOCOLS,
    MOST_TOPICS,
    MOST_TOPICS_READ,
)
from barnabas.kraft.commit_feed import APPLIED
from barnabas.protocol.embedded_consumer import write_subscription
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.protocol.messages.describe_topic_partitions import TopicRequest as TopicRequestOfPartitions
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.runtime import meter
from barnabas.runtime.step_driver import STEPS_IN_A_TURN
from simulation.invariants.work import MOST_CALLS
from tests.broker.apis.rig import Rig, batch_of, frame_of, on_cluster, values_in

MANY = 6_000
PARTITIONS = 1_500
SETTINGS = {
    "offsets__topic__replication__factor": "1",
    "offsets__topic__num__partitions": "3",
    "transaction__state__log__replication__factor": "1",
    "transaction__state__log__min__isr": "1",
    "transaction__state__log__num__partitions": "3",
}


async def coordinated(rig: Rig, key_type: int = 0) -> None:
    """The broker coordinates groups (0) or transactions (1)."""
    coordinator = rig.broker(1).transactions if key_type else rig.broker(1).groups
    await rig.ask(1, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a"]), 4)
    await rig.until(lambda: len(coordinator.shards) == 3)
    for shard in coordinator.shards:
        await rig.until(lambda shard=shard: shard.loaded_in_ms is not None)


def commit_request(group_id: str, partitions: int, offset: int = 7) -> OffsetCommitRequest:
    asked = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset + index, committed_metadata="m")
        for index in range(partitions)
    ]
    return OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=asked)])


def largest_step(rig: Rig, api: str) -> int:
    """The calls of the largest step of the requests that were asked last. The story fails without steps."""
    return max(rig.steps[api])


async def asked_in_steps(rig: Rig, api: str, request: Any, version: int) -> Any:
    """The answer to a large request, which takes many short steps."""
    rig.steps.clear()
    answer = await rig.ask(1, request, version)
    assert len(rig.steps[api]) > 5
    assert largest_step(rig, api) < MOST_CALLS
    return answer


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, **SETTINGS)
async def test_very_many_groups(rig: Rig) -> None:
    await coordinated(rig)
    groups = [f"g{number}" for number in range(MANY)]

    found = await asked_in_steps(
        rig, "FindCoordinator", FindCoordinatorRequest(key_type=0, coordinator_keys=[*groups, *groups]), 4
    )
    assert [it.key for it in found.coordinators] == groups

    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in [*groups, *groups]]
    fetched = await asked_in_steps(rig, "OffsetFetch", OffsetFetchRequest(groups=wanted), 8)
    assert [it.group_id for it in fetched.groups] == groups, "each is answered once, in order"
    assert not any(it.error_code or it.topics for it in fetched.groups)

    described = await asked_in_steps(rig, "DescribeGroups", DescribeGroupsRequest(groups=[*groups, *groups]), 5)
    assert [(it.group_id, it.group_state) for it in described.groups] == [(group, "Dead") for group in groups]

    deleted = await asked_in_steps(rig, "DeleteGroups", DeleteGroupsRequest(groups_names=[*groups, *groups]), 2)
    assert [it.group_id for it in deleted.results] == groups
    assert {it.error_code for it in deleted.results} == {ErrorCode.GROUP_ID_NOT_FOUND}


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, **SETTINGS)
async def test_a_group_with_very_many_offsets(rig: Rig) -> None:
    await rig.create("t", PARTITIONS)
    await coordinated(rig)
    committed = await asked_in_steps(rig, "OffsetCommit", commit_request("g", PARTITIONS + 10), 8)
    codes = {it.partition_index: it.error_code for topic in committed.topics for it in topic.partitions}
    assert codes == {
        index: ErrorCode.NONE if index < PARTITIONS else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for index in range(PARTITIONS + 10)
    }

    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(PARTITIONS)))]
    for wanted in (topics, None):
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
        fetched = await asked_in_steps(rig, "OffsetFetch", request, 8)
        (group,) = fetched.groups
        offsets = {it.partition_index: it.committed_offset for topic in group.topics for it in topic.partitions}
        assert offsets == {index: 7 + index for index in range(PARTITIONS)}

    some = [OffsetDeleteRequestPartition(partition_index=index) for index in range(1_000)]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=some)])
    deleted = await asked_in_steps(rig, "OffsetDelete", request, 0)
    assert deleted.error_code == ErrorCode.NONE
    assert sum(len(topic.partitions) for topic in deleted.topics) == 1_000
    assert len(rig.broker(1).groups.shard("g").machine.offsets.committed) == PARTITIONS - 1_000

    rig.steps.clear()
    gone = await rig.ask(1, DeleteGroupsRequest(groups_names=["g"]), 2)
    assert gone.results[0].error_code == ErrorCode.NONE
    assert largest_step(rig, "DeleteGroups") < MOST_CALLS
    assert "g" not in rig.broker(1).groups.shard("g").machine.offsets.committed


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, **SETTINGS)
async def test_members_that_leave_in_great_numbers(rig: Rig) -> None:
    await coordinated(rig)
    members = [MemberIdentity(member_id=f"m{number}") for number in range(MANY)]
    left = await asked_in_steps(rig, "LeaveGroup", LeaveGroupRequest(group_id="g", members=members), 4)
    assert left.error_code == ErrorCode.NONE
    assert [it.member_id for it in left.members] == [it.member_id for it in members]
    assert {it.error_code for it in left.members} == {ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True)
async def test_partitions_of_very_many_topics_are_described(rig: Rig) -> None:
    names = [f"t{number * 7919 % (5 * MANY):05}" for number in range(5 * MANY)]
    topics = [TopicRequestOfPartitions(name=name) for name in [*names, *names]]
    for cursor, code in (
        (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Cursor(topic_name=max(names), partition_index=-1), ErrorCode.INVALID_REQUEST),
    ):
        request = DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)
        described = await asked_in_steps(rig, "DescribeTopicPartitions", request, 0)
        assert [it.name for it in described.topics] == sorted(set(names))
        assert {it.error_code for it in described.topics} == {code}


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True)
async def test_look_ups_by_time(rig: Rig) -> None:
    await rig.create("t", 40)
    for index in range(40):
        await rig.produce("t", batch_of("a", "b", timestamp=100 + index), index=index)

    def asking(indexes: Sequence[int]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=index, timestamp=50)])
                for index in indexes
            ],
        )

    found = await asked_in_steps(rig, "ListOffsets", asking(range(40)), 5)
    answers = [it for topic in found.topics for it in topic.partitions]
    assert [(it.error_code, it.offset, it.timestamp) for it in answers] == [(0, 0, 100 + index) for index in range(40)]
    assert len(rig.steps["ListOffsets"]) > 40, "each look-up is a step of its own"

    twice = await asked_in_steps(rig, "ListOffsets", asking([*range(40), *([3] * 2_000)]), 5)
    codes = [it.error_code for topic in twice.topics for it in topic.partitions]
    assert codes[:3] == [ErrorCode.NONE] * 3
    assert codes[3] == ErrorCode.INVALID_REQUEST and set(codes[40:]) == {ErrorCode.INVALID_REQUEST}


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True)
async def test_a_partition_is_described_once_however_often_it_is_named(rig: Rig) -> None:
    await rig.create("t", 2)
    await rig.produce("t", batch_of("a", producer_id=5, producer_epoch=0, base_sequence=0))
    asked = [TopicRequest(name="t", partition_indexes=[0, 1] * 500) for _ in range(3)]
    described = await asked_in_steps(rig, "DescribeProducers", DescribeProducersRequest(topics=asked), 0)
    partitions = [it for topic in described.topics for it in topic.partitions]
    assert [it.partition_index for it in partitions] == [0, 1]
    assert [it.producer_id for it in partitions[0].active_producers] == [5]

    offsets = [DeleteRecordsPartition(partition_index=0, offset=0), DeleteRecordsPartition(partition_index=0, offset=1)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=offsets)], timeout_ms=1000)
    (topic,) = (await rig.ask(1, request, 2)).topics
    assert [(it.partition_index, it.low_watermark) for it in topic.partitions] == [(0, 1)], "as it was asked last"


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, **SETTINGS)
async def test_very_many_topics_and_partitions(rig: Rig) -> None:
    await rig.create("t", PARTITIONS)
    all_topics = await asked_in_steps(rig, "Metadata", MetadataRequest(topics=None), 12)
    (topic,) = all_topics.topics
    assert [it.partition_index for it in topic.partitions] == list(range(PARTITIONS))

    unknown = [MetadataRequestTopic(name=f"x{number}") for number in range(MANY)]
    request = MetadataRequest(topics=unknown, allow_auto_topic_creation=False)
    refused = await asked_in_steps(rig, "Metadata", request, 12)
    assert [it.name for it in refused.topics] == [it.name for it in unknown]

    partitions = [FetchPartition(partition=index, fetch_offset=0) for index in range(PARTITIONS)]
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=partitions)], max_wait_ms=50, min_bytes=1, max_bytes=1 << 20,
        session_epoch=0,
    )  # fmt: skip
    fetched = await asked_in_steps(rig, "Fetch", request, 12)
    assert fetched.session_id == 0, "so many partitions get no session"
    assert [it.partition_index for it in fetched.responses[0].partitions] == list(range(PARTITIONS))
    assert {it.error_code for it in fetched.responses[0].partitions} == {ErrorCode.NONE}


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True)
async def test_a_fetch_of_many_partitions_waits_for_records(rig: Rig) -> None:
    await rig.create("t", 400)
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(400)]
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=partitions)], max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20,
        session_epoch=0,
    )  # fmt: skip
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await rig.channel(1).call(request, timeout_ms=60_000, version=12))

    rig.nursery.start_soon(ask)
    await rig.until(lambda: rig.broker(1).fetches.delayed)
    before = trio.current_time()
    await rig.produce("t", index=300)
    await rig.until(lambda: answers)
    assert trio.current_time() - before < 5, "the record ends the wait"
    (topic,) = answers[0].responses
    assert [it.partition_index for it in topic.partitions if it.records] == [300]
    assert answers[0].session_id != 0
    assert largest_step(rig, "Fetch") < MOST_CALLS


def follower_fetch(partitions: Sequence[int], session: tuple[int, int], forgotten: Sequence[int] = ()) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=0, log_start_offset=0) for index in partitions]
    session_id, epoch = session
    return FetchRequest(
        replica_id=7, topics=[FetchTopic(topic="t", partitions=wanted)], max_wait_ms=50, min_bytes=1,
        max_bytes=1 << 20, session_id=session_id, session_epoch=epoch,
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))],
    )  # fmt: skip


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True)
async def test_a_client_that_says_to_be_a_follower_of_very_many_partitions(rig: Rig) -> None:
    await rig.create("t", 50)
    every = range(MANY)
    first = await asked_in_steps(rig, "Fetch", follower_fetch(every, (0, 0)), 12)
    assert first.session_id != 0
    session = (first.session_id, 1)
    again = await asked_in_steps(rig, "Fetch", follower_fetch(every, session), 12)
    assert [it.partition_index for it in again.responses[0].partitions] == list(every), "errors are repeated"
    sessions = rig.broker(1).sessions
    await asked_in_steps(rig, "Fetch", follower_fetch([], (session[0], 2), range(10, MANY)), 12)
    assert sessions.cached_partitions == 10
    await asked_in_steps(rig, "Fetch", follower_fetch(range(10, MANY), (session[0], 3)), 12)
    rig.steps.clear()
    unnamed = await rig.ask(1, follower_fetch([], (session[0], 4)), 12)
    assert len(unnamed.responses[0].partitions) == MANY
    assert largest_step(rig, "Fetch") < MOST_CALLS, "the session has them, though the request does not name them"
    rig.steps.clear()
    await rig.ask(1, follower_fetch([0], (session[0], -1)), 12)
    assert largest_step(rig, "Fetch") < MOST_CALLS
    assert not sessions.cached_partitions


@pytest.mark.feature("RP-02")
@on_cluster(brokers=3, counts_work=True)
async def test_followers_of_many_partitions_follow(rig: Rig) -> None:
    await rig.create("t", 600, [1, 2, 3])
    for base in range(2):
        answer = await rig.ask(1, produced(range(600), batch_of("v")), 9)
        assert {(it.error_code, it.base_offset) for it in answer.responses[0].partition_responses} == {(0, base)}
    assert largest_step(rig, "Fetch") < MOST_CALLS


def produced(partitions: Sequence[int], batch: bytes, *, acks: int = -1, tx: str | None = None) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    topics = [TopicProduceData(name="t", partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics, transactional_id=tx)


def produce_codes(answer: Any) -> list[int]:
    return [it.error_code for topic in answer.responses for it in topic.partition_responses]


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True)
async def test_records_for_very_many_partitions(rig: Rig) -> None:
    await rig.create("t", PARTITIONS)
    for acks in (-1, 1):
        request = produced(range(PARTITIONS + 10), batch_of("v"), acks=acks)
        answer = await asked_in_steps(rig, "Produce", request, 9)
        codes = produce_codes(answer)
        assert codes == [ErrorCode.NONE] * PARTITIONS + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 10
    (topic,) = answer.responses
    assert {it.base_offset for it in topic.partition_responses[:PARTITIONS]} == {1}

    same = await asked_in_steps(rig, "Produce", produced([3] * 1_000, batch_of("v")), 9)
    assert [it.base_offset for it in same.responses[0].partition_responses] == list(range(2, 1_002))


@pytest.mark.feature("RP-02", "RE-09")
@on_cluster(brokers=3, counts_work=True)
async def test_replicas_that_are_too_slow_for_a_large_produce(rig: Rig) -> None:
    await rig.create("t", 1_200, [1, 3])
    rig.universe.wires.isolate("broker-3")
    request = produced(range(1_200), batch_of("v"))
    request.timeout_ms = 1_000
    rig.steps.clear()
    answer = await rig.ask(1, request, 9)
    assert set(produce_codes(answer)) == {ErrorCode.REQUEST_TIMED_OUT}
    assert largest_step(rig, "Produce") < MOST_CALLS
    rig.universe.wires.heal()
    await rig.until(lambda: rig.partition(1, "t", 1_199).log.high_watermark)


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True)
async def test_records_sent_after_a_large_produce_are_written_after_it(rig: Rig) -> None:
    await rig.create("t", 600)
    connection = await rig.raw(1)
    last = 599
    await connection.send_frame(frame_of(produced(range(600), batch_of("large"), acks=0), 9))
    for value in ("b", "c", "d"):
        await connection.send_frame(frame_of(produced([last, *range(100)], batch_of(value)), 9))
    for _ in range(3):
        assert await connection.receive_frame() is not None
    assert values_in(await rig.fetch("t", index=last)) == ["large", "b", "c", "d"]
    assert largest_step(rig, "Produce") < MOST_CALLS

    connection = await rig.raw(1)
    await connection.send_frame(frame_of(produced(range(601), batch_of("e"), acks=0), 9))
    assert await connection.was_closed(), "one partition is unknown, and there is no answer that could say so"


@pytest.mark.feature("RP-02")
@on_cluster()
async def test_a_large_produce_of_a_connection_that_is_closed(rig: Rig) -> None:
    await rig.create("t", 200)
    broker = rig.broker(1)
    request = produced(range(200), batch_of("v"))
    request.topic_data[0].partition_data[60].records = batch_of(*["v"] * (2 * STEPS_AT_ONCE))
    connection = await rig.raw(1)
    async with broker.worker.reserved():
        await connection.send_frame(frame_of(request, 9))
        await rig.until(lambda: rig.partition(1, "t", 59).log.log_end_offset)
        before = broker.server.connections
        connection.close()
        await rig.until(
            lambda: broker.server.connections < before
            or any(each.closed for each in broker.server._connections.values())
        )
        assert (await rig.produce("t", index=0)).base_offset == 1
    await rig.until(lambda: not broker.slow_admissions)
    ends = [rig.partition(1, "t", index).log.log_end_offset for index in range(200)]
    assert ends == [2] + [1] * 59 + [0] * 140, "the rest is dropped"


@pytest.mark.feature("RP-02")
@pytest.mark.parametrize("version", [11, 12])
@on_cluster(counts_work=True, **SETTINGS)
async def test_a_transaction_writes_to_very_many_partitions(rig: Rig, version: int) -> None:
    await rig.create("t", 700)
    await coordinated(rig, 1)
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    producer = await rig.ask(1, init, 4)
    stamp = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "transactional": True}
    if version < 12:
        topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(700)))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics,
        )
        await rig.ask(1, request, 3)
    for sequence in range(2):
        batch = batch_of("v", base_sequence=sequence, **stamp)
        answer = await asked_in_steps(rig, "Produce", produced(range(700), batch, tx="x"), version)
        assert set(produce_codes(answer)) == {ErrorCode.NONE}
        assert {it.base_offset for it in answer.responses[0].partition_responses} == {sequence}

    batch = batch_of("v", base_sequence=2, **stamp)
    twice = await asked_in_steps(rig, "Produce", produced([5] * 700, batch, tx="x"), version)
    assert produce_codes(twice) == [ErrorCode.NONE] + [ErrorCode.INVALID_REQUEST] * 699
    assert not rig.partition(1, "t", 5).producer_queues


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, **SETTINGS)
async def test_a_transaction_with_very_many_partitions(rig: Rig) -> None:
    await rig.create("t", PARTITIONS)
    await coordinated(rig, 1)
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    producer = await rig.ask(1, init, 4)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(PARTITIONS)))],
    )
    rig.steps.clear()
    added = await rig.ask(1, request, 3)
    codes = {it.partition_error_code for it in added.results_by_topic_v3_and_below[0].results_by_partition}
    assert codes == {ErrorCode.NONE}
    assert largest_step(rig, "AddPartitionsToTxn") < MOST_CALLS

    ids = ["x", *(f"y{number}" for number in range(MANY)), "x"]
    described = await asked_in_steps(rig, "DescribeTransactions", DescribeTransactionsRequest(transactional_ids=ids), 0)
    assert [it.transactional_id for it in described.transaction_states] == ids[:-1]


def subscription(topics: int) -> bytes:
    return write_subscription(ConsumerProtocolSubscription(topics=[f"topic-{number}" for number in range(topics)]))


async def joined(rig: Rig, protocols: int, metadata: bytes, member_id: str = "") -> Any:
    """The answer to JoinGroup, in a version in which a member need not come twice."""
    named = [JoinGroupRequestProtocol(name=f"p{number}", metadata=metadata) for number in range(protocols)]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member_id,
        protocol_type="consumer", protocols=named,
    )  # fmt: skip
    return await rig.ask(1, request, 3)


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, **SETTINGS)
async def test_thousands_of_partitions_join_a_transaction_in_steps(rig: Rig) -> None:
    """Each partition is looked up, and its place in the response made, before the coordinator adds all of them."""
    many = 3_000
    await rig.create("t", many)
    await coordinated(rig, 1)
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    producer = await rig.ask(1, init, 4)

    def adding(partitions: range) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )

    refused = await asked_in_steps(rig, "AddPartitionsToTxn", adding(range(6 * many)), 3)
    (topic,) = refused.results_by_topic_v3_and_below
    codes = {it.partition_index: it.partition_error_code for it in topic.results_by_partition}
    assert codes == {
        index: ErrorCode.OPERATION_NOT_ATTEMPTED if index < many else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for index in range(6 * many)
    }

    added = await asked_in_steps(rig, "AddPartitionsToTxn", adding(range(many)), 3)
    (topic,) = added.results_by_topic_v3_and_below
    assert [it.partition_index for it in topic.results_by_partition] == list(range(many))
    assert {it.partition_error_code for it in topic.results_by_partition} == {ErrorCode.NONE}


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, group__initial__rebalance__delay__ms="0", **SETTINGS)
async def test_a_member_that_says_very_much(rig: Rig) -> None:
    await coordinated(rig)
    refused = await joined(rig, MOST_PROTOCOLS + 1, b"")
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    refused = await joined(rig, 2, bytes(MOST_METADATA_BYTES // 2 + 1))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    member = await joined(rig, 2, subscription(MOST_TOPICS_READ))
    assert member.error_code == ErrorCode.NONE
    (group,) = [
        shard.machine.classic.find("g") for shard in rig.broker(1).groups.shards if shard.machine.classic.find("g")
    ]
    assert len(group.subscription or ()) == MOST_TOPICS_READ
    again = await joined(rig, 2, subscription(MOST_TOPICS_READ + 1), member.member_id)
    assert again.generation_id == 2
    assert group.subscription is None, "to read it all would take too long"
    assert group.is_subscribed_to("any")

    def sync(assignments: int) -> SyncGroupRequest:
        parts = [SyncGroupRequestAssignment(member_id=f"m{number}", assignment=b"") for number in range(assignments)]
        return SyncGroupRequest(group_id="g", generation_id=2, member_id=member.member_id, assignments=parts)

    assert (await rig.ask(1, sync(MOST_ASSIGNMENTS + 1), 3)).error_code == ErrorCode.INVALID_REQUEST
    assert (await rig.ask(1, sync(MOST_ASSIGNMENTS), 3)).error_code == ErrorCode.NONE
    for api in ("JoinGroup", "SyncGroup"):
        assert largest_step(rig, api) < MOST_CALLS


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, **SETTINGS)
async def test_a_heartbeat_with_very_many_elements(rig: Rig) -> None:
    await coordinated(rig)

    async def beat(epoch: int, topics: int, owned: Sequence[TopicPartitions]) -> Any:
        names = [f"topic-{number}" for number in range(topics)]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, rebalance_timeout_ms=30_000,
            subscribed_topic_names=names, topic_partitions=list(owned),
        )  # fmt: skip
        return await rig.ask(1, request, 1)

    refused = await beat(0, MOST_TOPICS + 1, [])
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "SubscribedTopicNames must have at most 5000 topics; got 5001.",
    )
    member = await beat(0, MOST_TOPICS, [])
    assert member.error_code == ErrorCode.NONE
    halves = [TopicPartitions(topic_id=bytes(16), partitions=list(range(MOST_OWNED_PARTITIONS // 2)))] * 2
    owning = await beat(member.member_epoch, MOST_TOPICS - 1, halves)
    assert owning.error_code == ErrorCode.NONE
    one = TopicPartitions(topic_id=bytes(16), partitions=[1])
    for owned in ([*halves, one], [one] * (MOST_TOPICS + 1)):
        assert (await beat(owning.member_epoch, 1, owned)).error_code == ErrorCode.INVALID_REQUEST
    assert (await beat(owning.member_epoch, 1, [one] * MOST_TOPICS)).error_code == ErrorCode.NONE
    assert largest_step(rig, "ConsumerGroupHeartbeat") < MOST_CALLS


@on_cluster(**SETTINGS)
async def test_an_answer_that_grows_too_large_ends_with_errors(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await coordinated(rig)
    monkeypatch.setattr(meter, "MOST_ANSWER_BYTES", 20 * meter.ELEMENT_BYTES)
    groups = [f"g{number}" for number in range(60)]
    described = await rig.ask(1, DescribeGroupsRequest(groups=groups), 5)
    codes = [it.error_code for it in described.groups]
    assert [it.group_id for it in described.groups] == groups
    answered = codes.index(ErrorCode.POLICY_VIOLATION)
    assert 0 < answered <= 20
    assert set(codes[:answered]) == {ErrorCode.NONE} and set(codes[answered:]) == {ErrorCode.POLICY_VIOLATION}

    configs = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{number}", configuration_keys=None)
        for number in range(30)
    ]
    described = await rig.ask(1, DescribeConfigsRequest(resources=configs), 4)
    assert [it.error_code for it in described.results] == [0] * 2 + [ErrorCode.POLICY_VIOLATION] * 28


@pytest.mark.feature("RP-02", "MB-16")
@on_cluster(counts_work=True, **SETTINGS)
async def test_very_many_topics_reach_a_broker_in_short_steps(rig: Rig) -> None:
    topics = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(1_500)]
    created = await rig.ask(1, CreateTopicsRequest(topics=topics), 5)
    assert {it.error_code for it in created.topics} == {ErrorCode.NONE}
    await rig.until(lambda: len(rig.broker(1).partitions.led) >= 1_500)
    assert len(rig.steps[APPLIED]) > 5
    assert largest_step(rig, APPLIED) < MOST_CALLS


@pytest.mark.feature("RP-02")
@on_cluster(counts_work=True, **SETTINGS)
async def test_a_broker_with_very_many_configs_of_its_own(rig: Rig) -> None:
    names = [f"mine.{number}" for number in range(3_000)]
    configs = [AlterableConfig(name=name, config_operation=0, value="1") for name in names]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    altered = await rig.ask(1, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert altered.responses[0].error_code == ErrorCode.NONE
    await rig.until(lambda: "mine.0" in rig.broker(1).metadata.image.config(4, "1"))
    asked = [DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)]
    described = await asked_in_steps(rig, "DescribeConfigs", DescribeConfigsRequest(resources=asked), 4)
    assert {it.name for it in described.results[0].configs} > {*names}


@on_cluster(counts_work=True, **SETTINGS)
async def test_others_have_turns_while_a_long_request_is_under_way(rig: Rig) -> None:
    await coordinated(rig)
    groups = [f"g{number}" for number in range(20_000)]
    answers: list[Any] = []

    async def describe() -> None:
        answers.append(await rig.ask(1, DescribeGroupsRequest(groups=groups), 5))

    rig.nursery.start_soon(describe)
    await rig.until(lambda: rig.steps.get("DescribeGroups"))
    steps = rig.steps["DescribeGroups"]
    seen: list[int] = []
    while len(seen) < 10 or seen[-1] > seen[-10]:
        seen.append(len(steps))
        await trio.lowlevel.checkpoint()
    assert seen[-1] > 300
    assert max(after - before for before, after in pairwise(seen)) <= STEPS_IN_A_TURN
    await rig.until(lambda: answers)
    assert len(answers[0].groups) == len(groups)


@on_cluster(brokers=3, offsets__topic__num__partitions="3")
async def test_groups_of_a_coordinator_that_is_lost_are_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """State that was read is not answered if it is unknown whether it was replicated."""
    monkeypatch.setattr(coordinator_reads, "AT_ONCE", 0)
    await rig.create("t", 1, [1, 2, 3])
    await rig.ask(1, FindCoordinatorRequest(key_type=0, coordinator_keys=["a"]), 4)
    await rig.until(lambda: any(rig.broker(node).groups.shards for node in (1, 2, 3)))
    node = next(node for node in (1, 2, 3) if rig.broker(node).groups.shards)
    shard = rig.broker(node).groups.shards[0]
    await rig.until(lambda: shard.loaded_in_ms is not None)
    index = shard.partition.index
    group = next(f"g{it}" for it in range(100) if rig.broker(node).groups.partition_of(f"g{it}") == index)
    monkeypatch.setattr(type(shard.partition), "is_leader", property(lambda self: self is not shard.partition))
    waiting: list[Any] = []
    monkeypatch.setattr(
        type(shard.partition),
        "when_replicated",
        lambda self, offset, settled: waiting.append(settled),
    )
    answers: list[Any] = []

    async def ask() -> None:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answers.append(await rig.ask(node, request, 8))

    rig.nursery.start_soon(ask)
    await rig.until(lambda: waiting)
    assert not answers
    waiting[0](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await rig.until(lambda: answers)
    assert [it.error_code for it in answers[0].groups] == [ErrorCode.NOT_COORDINATOR]
