"""A request that goes wrong costs its own client something, and nobody else."""

from __future__ import annotations

import struct
from functools import partial

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.runtime.channel import Channel
from tests.broker.apis.rig import Raw, Rig, batch_of, frame_of, on_cluster, produce_request

TOO_LONG = "x" * 40_000
"""It fits into a compact string, and into no record of a coordinator."""

LONG_CLIENT_ID = "c" * 32_750
"""It fits into a header; a member id that is made from it fits nowhere."""


async def is_closed_by(rig: Rig, node: int, frame: bytes) -> bool:
    raw = await rig.raw(node)
    await raw.send_frame(frame)
    with trio.fail_after(30):
        return await raw.was_closed()


async def all_are_well(rig: Rig) -> None:
    for node in (1, 2, 3):
        assert (await rig.ask(node, MetadataRequest(topics=None))).topics
        assert (await rig.produce("t", index=node - 1)).error_code == 0


@pytest.mark.feature("RP-02", "TX-01")
@on_cluster(brokers=3)
async def test_a_transactional_id_that_no_record_can_carry(rig: Rig) -> None:
    """The broker's first producer id came in the background, and the id failed there: the broker ended."""
    await rig.create("t", partitions=3, replicas=3)
    request = InitProducerIdRequest(transactional_id=TOO_LONG, transaction_timeout_ms=60_000)
    for node in (1, 2, 3):
        assert await is_closed_by(rig, node, frame_of(request, 4))
    await all_are_well(rig)


@pytest.mark.feature("RP-02", "TX-08")
@on_cluster(brokers=3)
async def test_a_group_id_that_no_record_can_carry(rig: Rig) -> None:
    """The commit went on in the background when the transaction was verified, and ended the broker."""
    await rig.create("t", partitions=3, replicas=3)
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = TxnOffsetCommitRequest(
        transactional_id="txn",
        group_id=TOO_LONG,
        producer_id=1000,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    for node in (1, 2, 3):
        assert await is_closed_by(rig, node, frame_of(request, 5))
    await all_are_well(rig)


async def coordinator_of(rig: Rig, group_id: str) -> int:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
    with trio.fail_after(60):
        while True:
            (answer,) = (await rig.ask(1, request, 4)).coordinators
            if answer.error_code == 0:
                return int(answer.node_id)
            await trio.sleep(0.1)


@pytest.mark.feature("RP-02", "CG-02")
@pytest.mark.parametrize("version", [3, 5])
@on_cluster(brokers=3)
async def test_a_member_id_that_cannot_be_encoded_fails_only_its_member(
    rig: Rig, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure came up in the step of another request: it ended a follower's Fetch, and all requests behind it."""
    await rig.create("t", partitions=3, replicas=3)
    node = await coordinator_of(rig, "g")
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    channel = Channel(rig.world, rig.nursery, rig.name(node), rig.port(node), client_id=LONG_CLIENT_ID)
    answer = await channel.call(join, timeout_ms=5_000, version=version)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    await all_are_well(rig)
    failed = [record.getMessage() for record in caplog.records if record.exc_info]
    assert all("JoinGroup" in each for each in failed), failed
    decent = Channel(rig.world, rig.nursery, rig.name(node), rig.port(node), client_id="decent")
    join.group_id = "another"
    if await coordinator_of(rig, "another") == node:
        answer = await decent.call(join, timeout_ms=30_000, version=3)
        assert answer.error_code == 0


@pytest.mark.feature("RP-02")
@on_cluster()
async def test_a_mistake_of_ours_in_the_background_is_answered_and_counted(rig: Rig) -> None:
    """UNKNOWN_SERVER_ERROR for the client, a count for its operator; the broker goes on."""
    broker = rig.broker(1)

    async def mistaken(broker_epoch: int) -> None:
        raise RuntimeError("a mistake")

    original = broker.coordination.producer_ids.fetch
    broker.coordination.producer_ids.fetch = mistaken  # type: ignore[method-assign, assignment]
    answer = await rig.ask(1, InitProducerIdRequest(transactional_id=None))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    broker.coordination.producer_ids.fetch = original  # type: ignore[method-assign]
    assert (await rig.ask(1, InitProducerIdRequest(transactional_id=None))).error_code == 0
    assert broker.background.failures == 1


@pytest.mark.feature("AD-01", "RP-03")
@on_cluster()
async def test_forwarded_requests_of_one_connection_take_effect_in_their_order(rig: Rig) -> None:
    """They were forwarded by tasks that ran in any order: the last of four pipelined changes often did not win."""
    await rig.create("t")
    for attempt in range(10):
        raw = await rig.raw(1)
        wanted = [str(1000 + 20 * attempt + each) for each in range(12)]
        for correlation_id, value in enumerate(wanted):
            change = AlterableConfig(name="retention.ms", config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
            await raw.send_frame(frame_of(IncrementalAlterConfigsRequest(resources=[resource]), 1, correlation_id))
        for correlation_id in range(12):
            answer = await raw.receive_frame()
            assert answer is not None and answer[:4] == struct.pack(">i", correlation_id)
        await rig.until(lambda: rig.broker(1).metadata.image.config(2, "t").get("retention.ms") == wanted[-1])  # noqa: B023
        await trio.sleep(1)
        assert rig.broker(1).metadata.image.config(2, "t")["retention.ms"] == wanted[-1]
        raw.close()


@pytest.mark.feature("MB-08", "RP-03")
@on_cluster()
async def test_a_topic_that_is_deleted_and_created_by_pipelined_requests_is_there(rig: Rig) -> None:
    await rig.create("t")
    for _ in range(5):
        before = rig.broker(1).metadata.image.topics.by_name["t"].id
        raw = await rig.raw(1)
        await raw.send_frame(frame_of(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=9000), 6, 1))
        fresh = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await raw.send_frame(frame_of(CreateTopicsRequest(topics=[fresh], timeout_ms=9000), 7, 2))
        for _ in range(2):
            assert await raw.receive_frame() is not None
        await rig.until(partial(is_another_topic, rig, before))
        raw.close()


def is_another_topic(rig: Rig, topic_id: bytes) -> bool:
    topic = rig.broker(1).metadata.image.topics.by_name.get("t")
    return topic is not None and topic.id != topic_id


def commit(group_id: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )


@pytest.mark.feature("CG-10", "RP-03")
@on_cluster(brokers=3)
async def test_an_acknowledged_commit_is_not_undone_by_a_connection_that_was_closed_before(rig: Rig) -> None:
    """The client pipelined commits, gave its connection up, and came back over another one."""
    await rig.create("t", partitions=3, replicas=3)
    for trial in range(12):
        group_id = f"g-{trial}"
        node = await coordinator_of(rig, group_id)
        given_up = await rig.raw(node)
        channel = rig.channel(node)
        await channel.call(MetadataRequest(topics=[]), timeout_ms=60_000)
        frames = [frame_of(commit(group_id, offset), 7, offset) for offset in range(1500)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(given_up.send, b"".join(struct.pack(">i", len(it)) + it for it in frames))
            await trio.sleep(0.001 * (trial + 1))
            followers = [rig.name(each) for each in (1, 2, 3) if each != node]
            for follower in followers:
                rig.universe.wires.cut(follower, rig.name(node))  # the first commits stay under way
            given_up.close()
            nursery.cancel_scope.cancel()
        await trio.sleep(0.5)  # the end of the connection has arrived
        for follower in followers:
            rig.universe.wires.link(follower, rig.name(node)).set(cut=False)
        answer = await channel.call(commit(group_id, 5000), timeout_ms=60_000, version=7)
        assert answer.topics[0].partitions[0].error_code == 0
        await trio.sleep(5)
        asked = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        seen = await channel.call(OffsetFetchRequest(group_id=group_id, topics=[asked]), timeout_ms=60_000, version=7)
        assert seen.topics[0].partitions[0].committed_offset == 5000


@pytest.mark.feature("PR-03")
@on_cluster()
async def test_records_with_acks_0_sent_before_a_close_are_written(rig: Rig) -> None:
    """The producer waits for no response, so the end of its connection cancels nothing."""
    await rig.create("t")
    raw: Raw = await rig.raw(1)
    for number in range(300):
        await raw.send_frame(frame_of(produce_request("t", batch_of(str(number)), acks=0), 9, number))
    raw.close()
    await rig.until(lambda: rig.partition(1, "t").log.log_end_offset == 300)


@pytest.mark.feature("CG-10")
@on_cluster(brokers=3)
async def test_a_member_that_asks_for_no_offsets_has_to_be_one(rig: Rig) -> None:
    """Offsets are read in pieces, and a request without any had none in which its member was looked up."""
    await rig.create("t", partitions=3, replicas=3)
    node = await coordinator_of(rig, "modern")
    joining = ConsumerGroupHeartbeatRequest(
        group_id="modern",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        member_epoch=0,
        rebalance_timeout_ms=5_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (await rig.ask(node, joining)).error_code == 0
    asked = OffsetFetchRequestGroup(group_id="modern", member_id="nobody", member_epoch=1, topics=[])
    (answer,) = (await rig.ask(node, OffsetFetchRequest(groups=[asked]), 9)).groups
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
