"""Consumer groups (KIP-848) over the wire: members, patterns, configs of a group, another broker that takes over."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from tests.broker.apis.rig import Rig, on_cluster

GROUP = "readers"
GROUP_RESOURCE = 32

on_one_broker = on_cluster(
    offsets__topic__num__partitions="1",
    offsets__topic__replication__factor="1",
    group__consumer__assignment__interval__ms="0",
)
on_three_brokers = on_cluster(
    brokers=3, offsets__topic__num__partitions="1", group__consumer__assignment__interval__ms="0"
)

LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def coordinator(rig: Rig) -> int:
    """The coordinator of the group, as soon as there is one."""
    while True:
        up = [node.node.id for node in rig.cluster.brokers if node.broker is not None]
        response = await rig.ask(up[0], FindCoordinatorRequest(coordinator_keys=[GROUP]))
        (found,) = response.coordinators
        if found.error_code == ErrorCode.NONE and found.node_id in up:
            return int(found.node_id)
        await trio.sleep(0.1)


async def beat(rig: Rig, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat, sent again until a coordinator takes it."""
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
    while True:
        answer = await rig.ask(await coordinator(rig), request)
        if answer.error_code not in LOADING:
            assert isinstance(answer, ConsumerGroupHeartbeatResponse)
            return answer
        await trio.sleep(0.1)


async def join(rig: Rig, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    return await beat(
        rig,
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
        **fields,
    )


def assigned(answer: ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]]:
    assert answer.error_code == ErrorCode.NONE, answer
    assert answer.assignment is not None
    return {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}


@pytest.mark.feature("CG-13")
@on_one_broker
async def test_two_members_share_a_topic(rig: Rig) -> None:
    topic_id = await rig.create("news", 4)
    a = await join(rig, "a", "news")
    assert assigned(a) == {topic_id: [0, 1, 2, 3]}
    assert (a.member_epoch, a.heartbeat_interval_ms) == (2, 5000)
    b = await join(rig, "b", "news")
    assert assigned(b) == {}
    a = await beat(rig, "a", 2)
    keeps = assigned(a)
    assert len(keeps[topic_id]) == 2
    mine = [TopicPartitions(topic_id=topic_id, partitions=keeps[topic_id])]
    a = await beat(rig, "a", 2, topic_partitions=mine)
    assert a.member_epoch == 3
    b = await beat(rig, "b", 3, topic_partitions=[])
    assert sorted(keeps[topic_id] + assigned(b)[topic_id]) == [0, 1, 2, 3]
    node = await coordinator(rig)
    (described,) = (await rig.ask(node, ConsumerGroupDescribeRequest(group_ids=[GROUP]))).groups
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 3, "uniform")
    assert {member.member_id: member.client_id for member in described.members} == {"a": "story", "b": "story"}
    (listed,) = (await rig.ask(node, ListGroupsRequest(types_filter=["consumer"]))).groups
    assert (listed.group_id, listed.group_type, listed.group_state) == (GROUP, "consumer", "Stable")
    refused = await rig.ask(node, DeleteGroupsRequest(groups_names=[GROUP]))
    assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    for member in ("a", "b"):
        assert (await beat(rig, member, -1)).member_epoch == -1
    deleted = await rig.ask(node, DeleteGroupsRequest(groups_names=[GROUP]))
    assert deleted.results[0].error_code == ErrorCode.NONE
    (gone,) = (await rig.ask(node, ConsumerGroupDescribeRequest(group_ids=[GROUP]))).groups
    assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.feature("CG-15")
@on_one_broker
async def test_a_pattern_finds_topics_also_new_ones(rig: Rig) -> None:
    await rig.create("news-eu")
    await rig.create("sport")
    joined = await join(rig, "a", subscribed_topic_regex="news-.*")
    assert joined.error_code == ErrorCode.NONE
    await trio.sleep(0.1)
    found = await beat(rig, "a", joined.member_epoch, topic_partitions=[])
    assert len(assigned(found)) == 1
    bad = await join(rig, "b", subscribed_topic_regex="news-(?!eu)")
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert bad.error_message


@pytest.mark.feature("CG-15")
@on_one_broker
async def test_a_group_has_configs_of_its_own(rig: Rig) -> None:
    await rig.create("news")
    joined = await join(rig, "a", "news")
    await rig.configure(GROUP_RESOURCE, GROUP, consumer_heartbeat_interval_ms="6000")
    answer = await beat(rig, "a", joined.member_epoch)
    assert answer.heartbeat_interval_ms == 6000
    asked = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP)
    (result,) = (await rig.ask(1, DescribeConfigsRequest(resources=[asked], include_synonyms=True))).results
    values = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
    assert len(values) == 17
    assert values["consumer.heartbeat.interval.ms"] == ("6000", 8)
    assert values["consumer.session.timeout.ms"] == ("45000", 5)
    assert values["consumer.assignment.interval.ms"] == ("0", 4), "from the broker's file"
    too_long = AlterableConfig(name="consumer.session.timeout.ms", value="60001")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=[too_long])
    refused = (await rig.ask(1, IncrementalAlterConfigsRequest(resources=[resource]))).responses[0]
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "group.consumer.max.session.timeout.ms" in (refused.error_message or "")
    listed = await rig.ask(1, ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE]))
    assert [it.resource_name for it in listed.config_resources] == [GROUP]


@pytest.mark.feature("CG-13", "CG-12")
@on_three_brokers
async def test_another_broker_takes_the_group_over(rig: Rig) -> None:
    topic_id = await rig.create("news", 3, replicas=3)
    first = await join(rig, "a", "news")
    assert assigned(first) == {topic_id: [0, 1, 2]}
    node = await coordinator(rig)
    rig.cluster.kill(rig.name(node))
    answer = await beat(rig, "a", first.member_epoch)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None), "nothing changed for it"
    assert await coordinator(rig) != node


@pytest.mark.feature("CG-13")
@on_one_broker
async def test_a_large_assignment_comes_with_a_later_heartbeat(rig: Rig) -> None:
    """Its coordinator computes it in turns, and serves others meanwhile."""
    topic_id = await rig.create("news", 3_000)
    answer = await join(rig, "a", "news")
    assert assigned(answer) == {}
    while answer.assignment is None or not answer.assignment.topic_partitions:
        await trio.sleep(0.01)
        answer = await beat(rig, "a", answer.member_epoch, topic_partitions=[])
    assert assigned(answer) == {topic_id: list(range(3_000))}
    assert rig.broker(1).coordination.group_memory.held_bytes > 2_000


@pytest.mark.feature("CG-13")
@on_cluster(group__coordinator__rebalance__protocols="classic")
async def test_a_broker_can_do_without_them(rig: Rig) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a")
    assert (await rig.ask(1, request)).error_code == ErrorCode.UNSUPPORTED_VERSION
    described = await rig.ask(1, ConsumerGroupDescribeRequest(group_ids=[GROUP, "other"]))
    assert [(it.group_id, it.error_code) for it in described.groups] == [
        (GROUP, ErrorCode.UNSUPPORTED_VERSION),
        ("other", ErrorCode.UNSUPPORTED_VERSION),
    ], "whether there is a coordinator or not"
