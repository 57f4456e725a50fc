"""Offsets and groups over the wire: commit, fetch, delete, list, describe, and another broker that takes over."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.broker.coordinator.coordinator import java_hash
from barnabas.broker.coordinator.shard import ShardState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
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
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.apis.rig import Rig, on_cluster

GROUP = "readers"

on_one_broker = on_cluster(
    offsets__topic__num__partitions="3",
    offsets__topic__replication__factor="1",
    transaction__state__log__replication__factor="1",
    transaction__state__log__min__isr="1",
    transaction__state__log__num__partitions="1",
)
on_three_brokers = on_cluster(brokers=3, offsets__topic__num__partitions="3")


async def coordinator(rig: Rig, group: str = GROUP) -> int:
    """The coordinator of the group, as soon as there is one."""
    while True:
        up = [node.node.id for node in rig.cluster.brokers if node.broker is not None]
        response = await rig.ask(up[0], FindCoordinatorRequest(coordinator_keys=[group]))
        (found,) = response.coordinators
        if found.error_code == ErrorCode.NONE and found.node_id in up:
            shards = rig.broker(found.node_id).groups
            index = shards.partition_of(group)
            if any(it.partition.index == index and it.state is ShardState.ACTIVE for it in shards.shards):
                return int(found.node_id)
        await trio.sleep(0.05)


def committing(name: str, *partitions: tuple[int, int], topic_id: bytes = bytes(16)) -> OffsetCommitRequest:
    asked = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="m")
        for index, offset in partitions
    ]
    topic = OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=asked)
    return OffsetCommitRequest(group_id=GROUP, topics=[topic])


def errors(response: Any) -> dict[tuple[str | bytes, int], int]:
    """The error codes of a response to a commit or a deletion."""
    return {
        (topic.name or topic.topic_id, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def fetching(version: int, name: str, *indexes: int, topic_id: bytes = bytes(16)) -> OffsetFetchRequest:
    if version < 8:
        topic = OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes))
        return OffsetFetchRequest(group_id=GROUP, topics=[topic])
    topics = [OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=list(indexes))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])


def offsets(response: Any) -> list[tuple[int, int, str]]:
    """(index, offset, metadata) of the only topic, whichever version."""
    topics = response.groups[0].topics if response.groups else response.topics
    (topic,) = topics
    return [(it.partition_index, it.committed_offset, it.metadata) for it in topic.partitions]


@pytest.mark.feature("CG-03", "CG-04")
@on_one_broker
async def test_a_commit_is_read_back_in_every_version(rig: Rig) -> None:
    topic_id = await rig.create("t", 2)
    node = await coordinator(rig)
    for version in range(2, 11):
        by_id = version >= 10
        request = committing("" if by_id else "t", (0, version), topic_id=topic_id if by_id else bytes(16))
        response = await rig.ask(node, request, version)
        assert errors(response) == {(topic_id if by_id else "t", 0): ErrorCode.NONE}
        for reading in range(1, 11):
            by_id = reading >= 10
            asked = fetching(reading, "" if by_id else "t", 0, 1, topic_id=topic_id if by_id else bytes(16))
            found = await rig.ask(node, asked, reading)
            assert offsets(found) == [(0, version, "m"), (1, -1, "")]


@pytest.mark.feature("CG-03")
@on_one_broker
async def test_offsets_of_what_is_not_there_are_not_taken(rig: Rig) -> None:
    topic_id = await rig.create("t")
    node = await coordinator(rig)
    request = committing("t", (0, 5), (1, 5))
    request.topics += committing("gone", (0, 5)).topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(await rig.ask(node, request, 9)) == {("t", 1): unknown, ("t", 0): 0, ("gone", 0): unknown}
    assert errors(await rig.ask(node, committing("gone", (0, 5)), 9)) == {("gone", 0): unknown}

    foreign = bytes(range(16))
    request = committing("", (0, 6), topic_id=topic_id)
    request.topics += committing("", (0, 5), topic_id=foreign).topics
    assert errors(await rig.ask(node, request, 10)) == {(foreign, 0): ErrorCode.UNKNOWN_TOPIC_ID, (topic_id, 0): 0}

    asked = fetching(10, "", 0, topic_id=topic_id)
    topics = asked.groups[0].topics
    assert topics is not None
    topics.append(OffsetFetchRequestTopics(topic_id=foreign, partition_indexes=[0]))
    (known, not_known) = (await rig.ask(node, asked, 10)).groups[0].topics
    assert known.partitions[0].committed_offset == 6
    assert not_known.topic_id == foreign
    assert not_known.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.feature("CG-04")
@on_one_broker
async def test_many_groups_and_all_their_topics(rig: Rig) -> None:
    topic_id = await rig.create("t")
    await rig.create("u")
    node = await coordinator(rig)
    request = committing("t", (0, 1))
    request.topics += committing("u", (0, 2)).topics
    await rig.ask(node, request, 9)
    everything = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=GROUP, topics=None),
            OffsetFetchRequestGroup(group_id="nobody", topics=None),
            OffsetFetchRequestGroup(group_id=GROUP, topics=[]),
        ]
    )
    mine, nobody, nothing = (await rig.ask(node, everything, 9)).groups
    assert {topic.name: topic.partitions[0].committed_offset for topic in mine.topics} == {"t": 1, "u": 2}
    assert (nobody.group_id, nobody.error_code, nobody.topics) == ("nobody", 0, [])
    assert nothing.topics == []
    by_id = (await rig.ask(node, everything, 10)).groups[0]
    assert topic_id in [topic.topic_id for topic in by_id.topics]
    single = await rig.ask(node, OffsetFetchRequest(group_id=GROUP, topics=None), 7)
    assert {topic.name for topic in single.topics} == {"t", "u"}
    assert (await rig.ask(node, OffsetFetchRequest(), 9)).groups == []


@pytest.mark.feature("CG-02", "CG-03")
@on_three_brokers
async def test_only_the_coordinator_answers(rig: Rig) -> None:
    await rig.create("t")
    node = await coordinator(rig)
    other = next(it for it in (1, 2, 3) if it != node)
    wrong = ErrorCode.NOT_COORDINATOR
    assert errors(await rig.ask(other, committing("t", (0, 1)), 9)) == {("t", 0): wrong}
    assert (await rig.ask(other, fetching(9, "t", 0), 9)).groups[0].error_code == wrong
    assert (await rig.ask(other, fetching(7, "t", 0), 7)).error_code == wrong
    first = await rig.ask(other, fetching(1, "t", 0), 1)
    assert first.topics[0].partitions[0].error_code == wrong
    (described,) = (await rig.ask(other, DescribeGroupsRequest(groups=[GROUP]), 5)).groups
    assert (described.group_id, described.error_code) == (GROUP, wrong)
    (result,) = (await rig.ask(other, DeleteGroupsRequest(groups_names=[GROUP, GROUP]))).results
    assert result.error_code == wrong
    deletion = OffsetDeleteRequest(group_id=GROUP)
    assert (await rig.ask(other, deletion)).error_code == wrong


@pytest.mark.feature("CG-12", "CG-03")
@on_three_brokers
async def test_a_new_coordinator_knows_all_acknowledged_commits(rig: Rig) -> None:
    await rig.create("t", 3, replicas=3)
    node = await coordinator(rig)
    for index in range(3):
        assert errors(await rig.ask(node, committing("t", (index, 10 + index)), 9)) == {("t", index): 0}
    rig.cluster.kill(rig.name(node))
    while (heir := await coordinator(rig)) == node:
        await trio.sleep(0.05)
    assert offsets(await rig.ask(heir, fetching(9, "t", 0, 1, 2), 9)) == [(0, 10, "m"), (1, 11, "m"), (2, 12, "m")]


@pytest.mark.feature("CG-05")
@on_one_broker
async def test_a_deleted_topic_leaves_no_offsets_in_the_log(rig: Rig) -> None:
    await rig.create("t")
    node = await coordinator(rig)
    await rig.ask(node, committing("t", (0, 1)), 9)
    shard = rig.broker(node).groups.shard(GROUP)
    await rig.ask(node, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000))
    await rig.until(lambda: GROUP not in shard.machine.offsets.committed)
    await rig.create("t")
    assert offsets(await rig.ask(node, fetching(9, "t", 0), 9)) == [(0, -1, "")]


@pytest.mark.feature("CG-03")
@on_one_broker
async def test_offsets_are_deleted_over_the_wire(rig: Rig) -> None:
    await rig.create("t")
    node = await coordinator(rig)
    await rig.ask(node, committing("t", (0, 1)), 9)
    asked = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
    request = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="t", partitions=asked)])
    response = await rig.ask(node, request)
    assert response.error_code == ErrorCode.NONE
    assert errors(response) == {("t", 0): 0, ("t", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (await rig.ask(node, request)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await rig.ask(node, OffsetDeleteRequest(group_id=""))).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.feature("CG-08")
@on_one_broker
async def test_groups_are_listed_described_and_deleted(rig: Rig) -> None:
    await rig.create("t")
    node = await coordinator(rig)
    assert (await rig.ask(node, ListGroupsRequest())).groups == []
    await rig.ask(node, committing("t", (0, 1)), 9)
    others = ["a", "b", "c", "d"]
    assert len({java_hash(name) % 3 for name in others}) == 3
    for name in others:
        request = committing("t", (0, 1))
        request.group_id = name
        await rig.ask(node, request, 9)
    for version in range(6):
        listed = (await rig.ask(node, ListGroupsRequest(), version)).groups
        assert sorted(group.group_id for group in listed) == [*others, GROUP]
    assert {group.group_type for group in listed} == {"classic"}
    assert (await rig.ask(node, ListGroupsRequest(states_filter=["Stable"]))).groups == []

    asking = DescribeGroupsRequest(groups=[GROUP, "nobody"], include_authorized_operations=True)
    mine, nobody = (await rig.ask(node, asking, 6)).groups
    assert (mine.group_state, mine.error_code, mine.authorized_operations) == ("Empty", 0, 3400)
    assert (nobody.group_state, nobody.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert nobody.error_message == "Group nobody not found."

    results = (await rig.ask(node, DeleteGroupsRequest(groups_names=[GROUP, "nobody"]))).results
    assert [(it.group_id, it.error_code) for it in results] == [(GROUP, 0), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)]
    listed = (await rig.ask(node, ListGroupsRequest())).groups
    assert sorted(group.group_id for group in listed) == others
    assert (await rig.ask(node, DeleteGroupsRequest(groups_names=[]))).results == []
    assert (await rig.ask(node, DescribeGroupsRequest(groups=[]))).groups == []


def committing_in(producer_id: int, transactional_id: str, **more: Any) -> TxnOffsetCommitRequest:
    asked = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")]
    fields = {"group_id": GROUP, "topics": [TxnOffsetCommitRequestTopic(name="t", partitions=asked)], **more}
    return TxnOffsetCommitRequest(transactional_id=transactional_id, producer_id=producer_id, **fields)


@pytest.mark.feature("TX-04", "TX-05")
@on_one_broker
async def test_offsets_of_a_transaction_that_was_not_begun_are_refused(rig: Rig) -> None:
    await rig.create("t")
    node = await coordinator(rig)
    for version in range(6):
        response = await rig.ask(node, committing_in(4711, "x"), version)
        assert errors(response)["t", 0] != ErrorCode.NONE
    no_group = await rig.ask(node, committing_in(4711, "x", group_id=""))
    assert errors(no_group) == {("t", 0): ErrorCode.INVALID_GROUP_ID}
    assert offsets(await rig.ask(node, fetching(9, "t", 0), 9)) == [(0, -1, "")]


async def begin(rig: Rig, node: int, transactional_id: str = "x") -> tuple[int, int]:
    """A producer's id and epoch."""
    while True:
        response = await rig.ask(
            node, InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        )
        if response.error_code == ErrorCode.NONE:
            return response.producer_id, response.producer_epoch
        assert ErrorCode(response.error_code).retriable, response
        await rig.ask(node, FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]))
        await trio.sleep(0.1)


async def retried(rig: Rig, node: int, request: Any, version: int | None = None) -> Any:
    """A commit in a transaction, as clients try it until there is something to say."""
    while True:
        response = await rig.ask(node, request, version)
        if not any(ErrorCode(code).retriable for code in errors(response).values()):
            return response
        await trio.sleep(0.1)


@pytest.mark.feature("TX-04", "TX-05", "CG-04")
@pytest.mark.parametrize("committed", [True, False])
@on_one_broker
async def test_offsets_in_a_transaction_count_when_it_commits(rig: Rig, committed: bool) -> None:
    await rig.create("t")
    node = await coordinator(rig)
    producer_id, epoch = await begin(rig, node)
    response = await retried(rig, node, committing_in(producer_id, "x", producer_epoch=epoch))
    assert errors(response) == {("t", 0): ErrorCode.NONE}
    stable = fetching(9, "t", 0)
    stable.require_stable = True
    (topic,) = (await rig.ask(node, stable, 9)).groups[0].topics
    assert topic.partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert offsets(await rig.ask(node, fetching(9, "t", 0), 9)) == [(0, -1, "")]
    end = EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=committed)
    assert (await rig.ask(node, end)).error_code == ErrorCode.NONE

    offset = -1
    with trio.fail_after(30):
        while True:
            (topic,) = (await rig.ask(node, stable, 9)).groups[0].topics
            if topic.partitions[0].error_code == ErrorCode.NONE:
                offset = topic.partitions[0].committed_offset
                break
            await trio.sleep(0.1)
    assert offset == (9 if committed else -1)


@pytest.mark.feature("CG-04", "CG-12")
@on_one_broker
async def test_groups_of_a_partition_that_is_being_loaded_cannot_be_listed(rig: Rig) -> None:
    await rig.create("t")
    node = await coordinator(rig)
    await rig.ask(node, committing("t", (0, 1)), 9)
    shard = rig.broker(node).groups.shard(GROUP)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shard.state = ShardState.LOADING
    assert (await rig.ask(node, ListGroupsRequest())).error_code == loading
    assert errors(await rig.ask(node, committing("t", (0, 1)), 9)) == {("t", 0): loading}
    assert (await rig.ask(node, fetching(9, "t", 0), 9)).groups[0].error_code == loading
    old_producer = await rig.ask(node, committing_in(1, "x"), 1)
    assert errors(old_producer) == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert errors(await rig.ask(node, committing_in(1, "x"), 2)) == {("t", 0): loading}
    shard.state = ShardState.ACTIVE
    assert offsets(await rig.ask(node, fetching(9, "t", 0), 9)) == [(0, 1, "m")]
