"""Metadata, DescribeCluster, DescribeTopicPartitions: the whole cluster, as any broker describes it."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.apis.rig import Rig, on_cluster

UNASKED = -(2**31)
NOBODY = bytes(15) + b"\x09"


def by_name(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


async def ask(rig: Rig, node: int = 1, version: int = 12, **fields: object) -> MetadataResponse:
    request = MetadataRequest(**{"allow_auto_topic_creation": version < 4, **fields})  # type: ignore[arg-type]
    response = await rig.ask(node, request, version)
    assert isinstance(response, MetadataResponse)
    return response


@pytest.mark.feature("MB-07", "RP-10", "AD-03")
@on_cluster(brokers=3)
async def test_any_broker_describes_the_whole_cluster(rig: Rig) -> None:
    a = await rig.create("a", partitions=2, replicas=[2, 3])
    b = await rig.create("b", replicas=[3, 1, 2])
    for node in (1, 2, 3):
        response = await ask(rig, node, topics=None)
        assert [(it.node_id, it.host, it.port, it.rack) for it in response.brokers] == [
            (number, f"broker-{number}", 9092, f"rack-{number}") for number in (1, 2, 3)
        ]
        assert response.controller_id in (1, 2, 3), "a broker, which forwards"
        assert response.cluster_id == rig.broker(1).metadata.cluster_id
        assert [(it.name, it.topic_id, len(it.partitions)) for it in response.topics] == [("a", a, 2), ("b", b, 1)]
        (partition,) = response.topics[1].partitions
        assert (partition.leader_id, partition.leader_epoch, partition.error_code) == (3, 0, 0)
        assert partition.replica_nodes == [3, 1, 2] and sorted(partition.isr_nodes) == [1, 2, 3]
        assert partition.offline_replicas == []
    assert (await ask(rig, topics=[])).topics == []


@pytest.mark.feature("MB-07", "RP-10", "PF-04")
@on_cluster()
async def test_topics_that_are_not_there(rig: Rig) -> None:
    known = await rig.create("known")
    names = ["known", "nowhere", "bad name", "", ".", "..", "x" * 250, "known"]
    response = await ask(rig, topics=by_name(*names))
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert {it.name: it.error_code for it in response.topics} == {
        "known": 0,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        **dict.fromkeys(["bad name", "", ".", "..", "x" * 250], invalid),
    }
    assert len(response.topics) == len(names) - 1, "named twice, answered once"
    response = await ask(
        rig,
        topics=[
            MetadataRequestTopic(topic_id=known, name=None),
            MetadataRequestTopic(topic_id=NOBODY, name=None),
        ],
    )
    assert [(it.error_code, it.name, it.topic_id) for it in response.topics] == [
        (0, "known", known),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, NOBODY),
    ]
    await trio.sleep(1)
    assert list(rig.broker(1).metadata.image.topics.by_name) == ["known"], "nobody asked to create any"


@pytest.mark.feature("MB-09")
@on_cluster(num__partitions="3")
async def test_a_topic_is_made_because_it_is_asked_for(rig: Rig) -> None:
    for version in range(14):
        name = f"t-{version}"
        request = MetadataRequest(topics=by_name(name, "not/legal"), allow_auto_topic_creation=True)
        response = await rig.ask(1, request, version)
        assert [it.error_code for it in response.topics] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        await rig.until(lambda name=name: name in rig.broker(1).metadata.image.topics.by_name)  # type: ignore[misc]
        response = await rig.ask(1, request, version)
        assert (response.topics[0].error_code, len(response.topics[0].partitions)) == (0, 3)


@pytest.mark.feature("MB-09")
@on_cluster(auto__create__topics__enable="false")
async def test_no_topic_is_made_where_that_is_forbidden(rig: Rig) -> None:
    await ask(rig, topics=by_name("t"), allow_auto_topic_creation=True)
    await trio.sleep(1)
    assert not rig.broker(1).metadata.image.topics.by_name


@pytest.mark.feature("PF-04", "MB-07")
@on_cluster(brokers=3)
async def test_the_first_version_is_answered_as_its_clients_expect(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3])
    await rig.create("lone", replicas=[3])
    everything = await ask(rig, version=0, topics=[])
    assert [it.name for it in everything.topics] == ["lone", "t"], "empty means all"
    rig.cluster.kill("broker-3")
    await rig.until(lambda: list(rig.broker(1).metadata.alive_nodes("PLAINTEXT")) == [1, 2])
    (old,) = (await ask(rig, version=0, topics=by_name("t"))).topics
    assert old.partitions[0].replica_nodes == [1, 2], "ids that are not in the list of brokers are left out"
    assert old.partitions[0].error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    for version in (1, 5, 12):
        response = await ask(rig, version=version, topics=by_name("t", "lone"))
        assert [it.node_id for it in response.brokers] == [1, 2, 3], "its session has not ended yet"
        t, lone = response.topics
        assert t.partitions[0].replica_nodes == [1, 2, 3] and t.partitions[0].error_code == 0
        assert t.partitions[0].isr_nodes == [1, 2]
        assert t.partitions[0].offline_replicas == ([3] if version >= 5 else [])
        assert (lone.partitions[0].error_code, lone.partitions[0].leader_id) == (
            ErrorCode.LEADER_NOT_AVAILABLE,
            -1,
        )


@pytest.mark.feature("MB-12")
@on_cluster(brokers=3)
async def test_a_dead_broker_is_listed_until_its_session_would_have_ended(rig: Rig) -> None:
    """Kafka detects the death only then: clients look for the broker while it is listed, and retry."""
    rig.cluster.kill("broker-3")
    await rig.until(lambda: list(rig.broker(1).metadata.alive_nodes("PLAINTEXT")) == [1, 2])
    died = rig.universe.time.current_time()
    assert [it.node_id for it in (await ask(rig, topics=[])).brokers] == [1, 2, 3]
    while [it.node_id for it in (await ask(rig, topics=[])).brokers] != [1, 2]:
        await trio.sleep(0.1)
    assert 8.8 < rig.universe.time.current_time() - died < 9.3

    rig.cluster.kill("broker-2")
    await rig.until(lambda: list(rig.broker(1).metadata.alive_nodes("PLAINTEXT")) == [1])
    rig.cluster.start("broker-2")
    await rig.until(lambda: list(rig.broker(1).metadata.alive_nodes("PLAINTEXT")) == [1, 2])
    await rig.cluster.stop("broker-2")
    await rig.until(lambda: list(rig.broker(1).metadata.alive_nodes("PLAINTEXT")) == [1])
    assert [it.node_id for it in (await ask(rig, topics=[])).brokers] == [1], "this one took its leave"


@pytest.mark.feature("RP-10")
@on_cluster()
async def test_authorized_operations_are_returned_on_request(rig: Rig) -> None:
    await rig.create("t")
    for version in range(14):
        wants = version >= 8
        response = await ask(
            rig,
            version=version,
            topics=by_name("t"),
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=wants,
            include_cluster_authorized_operations=8 <= version <= 10,
        )
        topic = response.topics[0].topic_authorized_operations
        assert topic == (0b110111111000 if wants else UNASKED)
        assert (response.cluster_authorized_operations != UNASKED) == (8 <= version <= 10)
    assert (await ask(rig, topics=by_name("t"))).topics[0].topic_authorized_operations == UNASKED


@pytest.mark.feature("MB-03", "AD-03")
@on_cluster(brokers=3)
async def test_fenced_brokers_are_returned_only_on_request(rig: Rig) -> None:
    rig.cluster.kill("broker-3")
    await rig.until(lambda: list(rig.broker(1).metadata.alive_nodes("PLAINTEXT")) == [1, 2])
    for version in range(3):
        response = await rig.ask(1, DescribeClusterRequest(), version)
        assert [it.broker_id for it in response.brokers] == [1, 2]
        assert response.controller_id in (1, 2) and response.cluster_id == rig.broker(1).metadata.cluster_id
    response = await rig.ask(1, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(it.broker_id, it.is_fenced) for it in response.brokers] == [(1, False), (2, False), (3, True)]
    response = await rig.ask(1, DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert response.cluster_authorized_operations > 0


@pytest.mark.feature("AD-03")
@on_cluster()
async def test_brokers_describe_brokers_and_controllers_controllers(rig: Rig) -> None:
    for node, own, other in ((1, 1, 2), (101, 2, 1)):
        fine = await rig.ask(node, DescribeClusterRequest(endpoint_type=own))
        assert (fine.error_code, fine.endpoint_type) == (0, own)
        assert [it.broker_id for it in fine.brokers] == [node]
        wrong = await rig.ask(node, DescribeClusterRequest(endpoint_type=other))
        assert (wrong.error_code, wrong.brokers) == (ErrorCode.MISMATCHED_ENDPOINT_TYPE, [])
        unknown = await rig.ask(node, DescribeClusterRequest(endpoint_type=7))
        assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    assert (await rig.ask(101, DescribeClusterRequest(endpoint_type=2))).controller_id == 101


async def page(rig: Rig, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> (
    DescribeTopicPartitionsResponse
):
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = await rig.ask(1, request)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def described_partitions(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(it.name, [partition.partition_index for partition in it.partitions]) for it in response.topics]


def next_of(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.mark.feature("AD-03")
@on_cluster(max__request__partition__size__limit="4")
async def test_partitions_come_in_pages(rig: Rig) -> None:
    for name, partitions in (("a", 3), ("b", 3), ("c", 1)):
        await rig.create(name, partitions=partitions)
    first = await page(rig)
    assert described_partitions(first) == [("a", [0, 1, 2]), ("b", [0])], "the broker's own limit"
    assert next_of(first) == ("b", 1)
    second = await page(rig, cursor=("b", 1))
    assert described_partitions(second) == [("b", [1, 2]), ("c", [0])] and next_of(second) is None
    # A page that ends with a topic points at the next.
    full = await page(rig, limit=3)
    assert described_partitions(full) == [("a", [0, 1, 2])] and next_of(full) == ("b", 0)
    # At least one partition comes, or a client would turn in circles.
    assert described_partitions(await page(rig, limit=0)) == [("a", [0])]
    assert described_partitions(await page(rig, limit=-5)) == [("a", [0])]
    # By name, in the order of names; topics that are not there have no cursor of their own.
    asked = await page(rig, "c", "nowhere", "not/legal")
    assert {it.name: it.error_code for it in asked.topics} == {
        "c": 0,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert [it.name for it in asked.topics] == ["c", "not/legal", "nowhere"]
    # A cursor that cannot be: in a topic that was not asked for, or before the first partition.
    for cursor in (("b", 0), ("a", -1)):
        wrong = await page(rig, "a", "c", cursor=cursor)
        assert {it.error_code for it in wrong.topics} == {ErrorCode.INVALID_REQUEST}
    # The cursor's topic was deleted meanwhile: on with the next.
    assert described_partitions(await page(rig, cursor=("aa", 5))) == [("b", [0, 1, 2]), ("c", [0])]


@pytest.mark.feature("AD-03", "MB-15")
@on_cluster(brokers=3)
async def test_eligible_leader_replicas_are_described(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="3")
    rig.cluster.kill("broker-3")
    await rig.until(lambda: rig.broker(1).metadata.image.topics.by_name["t"].partitions[0].elr == (3,))
    (topic,) = (await page(rig, "t")).topics
    (partition,) = topic.partitions
    assert (topic.topic_id, topic.is_internal) == (topic_id, False)
    assert topic.topic_authorized_operations == 0b110111111000
    assert (partition.leader_id, partition.isr_nodes, partition.replica_nodes) == (1, [1, 2], [1, 2, 3])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([3], [])
    assert partition.offline_replicas == [3]
