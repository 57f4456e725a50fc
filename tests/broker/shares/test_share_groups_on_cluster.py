"""Share groups over the network: members, descriptions, offsets, deletion, and the loss of coordinators."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_share_group_offsets as alter
from barnabas.protocol.messages import delete_share_group_offsets as delete
from barnabas.protocol.messages import describe_share_group_offsets as describe
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError
from tests.broker.apis.rig import Rig, on_cluster

pytestmark = pytest.mark.feature("CG-17", "CG-18")

FEW = {
    "offsets__topic__num__partitions": "3",
    "share__coordinator__state__topic__num__partitions": "3",
    "group__share__assignment__interval__ms": "0",
}


async def ask_coordinator(rig: Rig, node: int, request: Message, group_id: str = "work") -> Message:
    """The answer of the group's coordinator, which is looked up at `node`, once it serves."""
    while True:
        (found,) = (await rig.ask(node, FindCoordinatorRequest(coordinator_keys=[group_id]), 4)).coordinators
        if found.error_code == ErrorCode.NONE:
            try:
                answer = await rig.ask(found.node_id, request)
            except ChannelError:
                await trio.sleep(0.1)
                continue
            code = getattr(answer, "error_code", None)
            if code is None:
                code = next(iter(getattr(answer, "groups", None) or answer.results)).error_code
            passing = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if code not in passing:
                assert isinstance(answer, Message)
                return answer
        await trio.sleep(0.1)


async def beat(
    rig: Rig, node: int, epoch: int, member_id: str = "a", topics: list[str] | None = None
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id="work", member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
    )
    response = await ask_coordinator(rig, node, request)
    assert isinstance(response, ShareGroupHeartbeatResponse)
    return response


async def until_assigned(rig: Rig, node: int, epoch: int) -> ShareGroupHeartbeatResponse:
    """The heartbeat's answer in which the member has all partitions."""
    while True:
        response = await beat(rig, node, epoch)
        assert response.error_code == ErrorCode.NONE, response
        epoch = response.member_epoch
        if response.assignment is not None and response.assignment.topic_partitions:
            return response
        await trio.sleep(0.1)


async def offsets(rig: Rig, node: int = 1, topics: list[str] | None = None) -> dict[tuple[str, int], tuple[int, int]]:
    """(start offset, lag) by partition."""
    wanted = None if topics is None else [
        describe.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0, 1]) for name in topics
    ]
    group = describe.DescribeShareGroupOffsetsRequestGroup(group_id="work", topics=wanted)
    answer = await ask_coordinator(rig, node, describe.DescribeShareGroupOffsetsRequest(groups=[group]))
    (described,) = answer.groups  # type: ignore[attr-defined]
    assert described.error_code == ErrorCode.NONE, described
    return {
        (topic.topic_name, it.partition_index): (it.start_offset, it.lag)
        for topic in described.topics
        for it in topic.partitions
    }


@on_cluster(brokers=3, **FEW)
async def test_a_group_outlives_its_coordinators(rig: Rig) -> None:
    topic_id = await rig.create("orders", partitions=4, replicas=3)
    joined = await beat(rig, 1, 0, topics=["orders"])
    assigned = await until_assigned(rig, 1, joined.member_epoch)
    assert assigned.assignment is not None
    (topic,) = assigned.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (topic_id, [0, 1, 2, 3])
    (found,) = (await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["work"]), 4)).coordinators
    rig.cluster.kill(rig.name(found.node_id))
    other = 1 + found.node_id % 3
    again = await beat(rig, other, assigned.member_epoch)
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, assigned.member_epoch)
    described = await ask_coordinator(rig, other, ShareGroupDescribeRequest(group_ids=["work"]))
    (group,) = described.groups  # type: ignore[attr-defined]
    assert (group.group_state, group.assignor_name, len(group.members)) == ("Stable", "simple", 1)
    assert [it.partitions for it in group.members[0].assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert await offsets(rig, other) == {("orders", index): (-1, -1) for index in range(4)}, "nobody has read yet"


@on_cluster(brokers=3, **FEW)
async def test_offsets_of_an_empty_group_are_altered_and_deleted(rig: Rig) -> None:
    await rig.create("orders", partitions=2, replicas=3)
    await rig.until(lambda: rig.leader("orders") > 0)
    await rig.produce("orders", node=rig.leader("orders"))
    request = alter.AlterShareGroupOffsetsRequest(
        group_id="work",
        topics=[
            alter.AlterShareGroupOffsetsRequestTopic(
                topic_name="orders",
                partitions=[
                    alter.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
                    for index in (0, 7)
                ],
            ),
            alter.AlterShareGroupOffsetsRequestTopic(
                topic_name="nothing", partitions=[alter.AlterShareGroupOffsetsRequestPartition(partition_index=0)]
            ),
        ],
    )
    altered = await ask_coordinator(rig, 1, request)
    codes = [
        (topic.topic_name, it.partition_index, it.error_code)
        for topic in altered.responses  # type: ignore[attr-defined]
        for it in topic.partitions
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [("orders", 0, 0), ("orders", 7, unknown), ("nothing", 0, unknown)]
    end_offset = rig.partition(rig.leader("orders"), "orders").log.log_end_offset
    assert end_offset > 0
    assert await offsets(rig) == {("orders", 0): (0, end_offset)}
    assert await offsets(rig, topics=["orders", "nothing"]) == {
        ("orders", 0): (0, end_offset),
        ("orders", 1): (-1, -1),
        ("nothing", 0): (-1, -1),
        ("nothing", 1): (-1, -1),
    }
    deleted = await ask_coordinator(
        rig,
        1,
        delete.DeleteShareGroupOffsetsRequest(
            group_id="work",
            topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("orders", "nothing")],
        ),
    )
    results = [(it.topic_name, it.error_code) for it in deleted.responses]  # type: ignore[attr-defined]
    assert results == [("orders", 0), ("nothing", unknown)]
    assert await offsets(rig) == {}


@on_cluster(brokers=3, **FEW)
async def test_a_group_is_deleted_with_its_states(rig: Rig) -> None:
    await rig.create("orders", partitions=2, replicas=3)
    joined = await beat(rig, 1, 0, topics=["orders"])
    await until_assigned(rig, 1, joined.member_epoch)
    refused = await ask_coordinator(rig, 1, DeleteGroupsRequest(groups_names=["work"]))
    assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP  # type: ignore[attr-defined]
    assert (await beat(rig, 1, -1)).error_code == ErrorCode.NONE
    done = await ask_coordinator(rig, 1, DeleteGroupsRequest(groups_names=["work"]))
    assert done.results[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    assert await offsets(rig) == {}
    described = await ask_coordinator(rig, 1, ShareGroupDescribeRequest(group_ids=["work"]))
    assert described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND  # type: ignore[attr-defined]
    states = [shard.machine for node in (1, 2, 3) for shard in rig.broker(node).coordination.shares.shards]
    assert not any(machine.keys for machine in states)


@on_cluster(**FEW)
async def test_share_groups_can_be_switched_off(rig: Rig) -> None:
    update = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    answer = await rig.ask(1, UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000))
    assert answer.error_code == ErrorCode.NONE, answer
    await rig.until(lambda: rig.broker(1).metadata.image.features.level("share.version") == 0)
    request = ShareGroupHeartbeatRequest(group_id="work", member_id="a", subscribed_topic_names=["orders"])
    assert (await rig.ask(1, request)).error_code == ErrorCode.UNSUPPORTED_VERSION
    group = describe.DescribeShareGroupOffsetsRequestGroup(group_id="work", topics=None)
    answer = await rig.ask(1, describe.DescribeShareGroupOffsetsRequest(groups=[group]))
    assert answer.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
