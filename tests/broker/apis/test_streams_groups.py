"""Streams groups (KIP-1071) over the wire: internal topics, rights, features, another broker that takes over."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from barnabas.broker.coordinator_metrics import coordination_families
from barnabas.broker.groups.streams.configured_topology import Status
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    Topology,
)
from tests.broker.apis.rig import Rig, on_cluster, play
from tests.broker.apis.test_consumer_groups import LOADING, coordinator
from tests.broker.authorization.state import SETTINGS
from tests.broker.authorization.users import User, user_who_may
from tests.broker.groups.streams_rig import subtopology, topology

pytestmark = pytest.mark.feature("CG-20")

GROUP = "readers"
AT_ONCE = {
    "offsets.topic.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
}
on_brokers = partial(on_cluster, **{key.replace(".", "__"): value for key, value in AT_ONCE.items()})
COUNTING = topology(
    subtopology("0", ["words"], sinks=["app-by-key"]),
    subtopology("1", repartitions={"app-by-key": 0}, changelogs=["app-store"]),
)


def joining(sent: Topology = COUNTING, *, member_id: str = "a") -> StreamsGroupHeartbeatRequest:
    nothing: dict[str, list[TaskIds]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    return StreamsGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, rebalance_timeout_ms=60_000, topology=sent, process_id="p", **nothing
    )


def staying(epoch: int, *, member_id: str = "a", **fields: Any) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)


async def beat(rig: Rig, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    """A heartbeat, sent again until a coordinator takes it."""
    while True:
        answer: StreamsGroupHeartbeatResponse = await rig.ask(await coordinator(rig), request)
        if answer.error_code not in LOADING:
            return answer
        await trio.sleep(0.1)


def details(answer: StreamsGroupHeartbeatResponse) -> dict[int, str]:
    return {it.status_code: it.status_detail for it in answer.status or ()}


async def until_ready(rig: Rig, epoch: int) -> StreamsGroupHeartbeatResponse:
    """The first answer without a status."""
    while True:
        answer = await beat(rig, staying(epoch))
        assert answer.error_code == ErrorCode.NONE, answer
        if not answer.status:
            return answer
        epoch = answer.member_epoch
        await trio.sleep(1)


@on_brokers(offsets__topic__replication__factor="1")
async def test_the_coordinator_creates_the_internal_topics(rig: Rig) -> None:
    await rig.create("words", partitions=3)
    joined = await beat(rig, joining())
    assert details(joined) == {Status.MISSING_INTERNAL_TOPICS: "Internal topics are missing: app-by-key, app-store"}
    ready = await until_ready(rig, joined.member_epoch)
    topics = rig.broker(1).metadata.image.topics.by_name
    assert {name: len(topics[name].partitions) for name in ("app-by-key", "app-store")} == {
        "app-by-key": 3,
        "app-store": 3,
    }
    given = {it.subtopology_id: it.partitions for it in ready.active_tasks or ()}
    assert given == {"0": [0, 1, 2], "1": [0, 1, 2]}
    measured = {
        family.name.removeprefix("kafka_server_groupcoordinatormetrics_"): dict(family.samples)
        for families in coordination_families(rig.broker(1).coordination)
        for family in families()
    }
    assert measured["streams_group_count"] == {("Stable",): 1}
    assert measured["streams_group_rebalance"] == {(): 2}


@on_brokers(offsets__topic__replication__factor="1")
async def test_a_topic_that_cannot_be_created_is_reported_with_a_later_heartbeat(rig: Rig) -> None:
    await rig.create("words")
    wanting = subtopology("0", ["words"], changelogs=["app-store"])
    wanting.state_changelog_topics[0].replication_factor = 3
    joined = await beat(rig, joining(topology(wanting)))
    await trio.sleep(1)
    later = details(await beat(rig, staying(joined.member_epoch)))[Status.MISSING_INTERNAL_TOPICS]
    assert later.startswith("Internal topics are missing: app-store; Creation failed: app-store (")
    assert "3" in later
    await trio.sleep(11)
    await rig.create("app-store")
    assert (await until_ready(rig, joined.member_epoch)).active_tasks


@on_brokers(brokers=3)
async def test_another_broker_takes_over(rig: Rig) -> None:
    await rig.create("words", partitions=2, replicas=3)
    sent = topology(subtopology("0", ["words"]))
    first = await beat(rig, joining(sent))
    second = await beat(rig, joining(sent, member_id="b"))
    dead = await coordinator(rig)
    rig.cluster.kill(rig.name(dead))
    revoked = await beat(rig, staying(first.member_epoch))
    while revoked.error_code:
        await trio.sleep(0.1)
        revoked = await beat(rig, staying(first.member_epoch))
    assert await coordinator(rig) != dead
    kept = revoked.active_tasks
    assert kept is not None and kept[0].partitions == [0]
    await beat(rig, staying(first.member_epoch, active_tasks=kept, standby_tasks=[], warmup_tasks=[]))
    given = await beat(rig, staying(second.member_epoch, member_id="b"))
    assert given.active_tasks is not None and given.active_tasks[0].partitions == [1]
    described = await rig.ask(await coordinator(rig), StreamsGroupDescribeRequest(group_ids=[GROUP]))
    (group,) = described.groups
    assert (group.group_state, group.group_epoch, len(group.members)) == ("Stable", 3, 2)


@on_cluster(offsets__topic__replication__factor="1", group__coordinator__rebalance__protocols="classic,consumer")
async def test_a_broker_whose_file_leaves_streams_out_refuses_them(rig: Rig) -> None:
    for request in (joining(), StreamsGroupDescribeRequest(group_ids=[GROUP])):
        answer = await rig.ask(1, request)
        code = answer.groups[0].error_code if hasattr(answer, "groups") else answer.error_code
        assert code == ErrorCode.UNSUPPORTED_VERSION


@on_brokers(offsets__topic__replication__factor="1")
async def test_names_that_no_topic_can_have_are_refused(rig: Rig) -> None:
    for name, part in (("__consumer_offsets", "internal topics __consumer_offsets"), ("bad name", "names bad name")):
        answer = await beat(rig, joining(topology(subtopology("0", ["words"], changelogs=[name]))))
        assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert part in (answer.error_message or "")


def test_a_member_needs_rights_on_the_group_and_on_all_topics() -> None:
    async def story(rig: Rig) -> None:
        await rig.create("words")
        await coordinator(rig)
        reader = "topic words DESCRIBE + topic app-by-key DESCRIBE + topic app-store DESCRIBE"
        alice = await user_who_may(rig, reader)
        assert (await asked(alice, joining())).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        await user_who_may(rig, f"group {GROUP} READ")
        joined = await asked(alice, joining())
        assert details(joined)[Status.MISSING_INTERNAL_TOPICS] == (
            "Internal topics are missing: app-by-key, app-store; "
            "Unauthorized to CREATE on topics app-by-key, app-store."
        )
        other = joining(topology(subtopology("0", ["secret"])), member_id="b")
        assert (await asked(alice, other)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await user_who_may(rig, "topic app-by-key CREATE + topic app-store CREATE")
        assert "Unauthorized" not in str((await asked(alice, staying(joined.member_epoch))).status)
        topics = rig.broker(1).metadata
        await rig.until(lambda: "app-store" in topics.image.topics.by_name)
        bob = await user_who_may(rig, f"group {GROUP} DESCRIBE + topic words DESCRIBE", "bob")
        (hidden,) = (await bob.ask(StreamsGroupDescribeRequest(group_ids=[GROUP]))).groups
        assert (hidden.error_code, hidden.members, hidden.topology) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [], None)
        (shown,) = (await alice.ask(StreamsGroupDescribeRequest(group_ids=[GROUP]))).groups
        assert [it.member_id for it in shown.members] == ["a"]

    play(story, 1, 1, SETTINGS | AT_ONCE)


async def asked(user: User, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    while True:
        answer: StreamsGroupHeartbeatResponse = await user.ask(request)
        if answer.error_code not in LOADING:
            return answer
        await trio.sleep(0.1)
