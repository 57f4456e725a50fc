"""The quorum's APIs on the wire: refusals and their errors, and the answers about
all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from barnabas.kraft.quorum_messages import METADATA_TOPIC_ID
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    vote,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from tests.kraft.raft.replica_cluster import CLUSTER_ID, ReplicaCluster

TOPIC = "__cluster_metadata"
Ask = Callable[..., Awaitable[Any]]


def play(story: Callable[[ReplicaCluster, Ask], Awaitable[None]]) -> None:
    """Three voters with a leader, and a stranger who asks them things."""

    async def main(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = ReplicaCluster(universe, nursery, 3, lambda config: config)
            for node_id in cluster.voters:
                await cluster.start(node_id)
            await cluster.write("a", "1")
            await cluster.wait_until_all_have("a", "1")
            world = make_world("stranger", universe)
            channels = {
                node_id: Channel(world, nursery, address.host, address.port, client_id="stranger")
                for node_id, address in cluster.voters.items()
            }

            async def ask(node_id: int, message: Message, version: int | None = None) -> Any:
                return await channels[node_id].call(message, timeout_ms=2_000, version=version)

            await story(cluster, ask)
            nursery.cancel_scope.cancel()

    run_simulation(1, main)


def requests(cluster_id: str | None, topic: str, partition: int, epoch: int) -> list[Message]:
    """One of each API that speaks of the metadata partition."""
    return [
        vote.VoteRequest(
            cluster_id=cluster_id,
            topics=[
                vote.RequestTopicData(
                    topic_name=topic,
                    partitions=[
                        vote.RequestPartitionData(partition_index=partition, replica_epoch=epoch, replica_id=2)
                    ],
                )
            ],
        ),
        begin_quorum_epoch.BeginQuorumEpochRequest(
            cluster_id=cluster_id,
            topics=[
                begin_quorum_epoch.RequestTopicData(
                    topic_name=topic,
                    partitions=[
                        begin_quorum_epoch.RequestPartitionData(
                            partition_index=partition, leader_id=2, leader_epoch=epoch
                        )
                    ],
                )
            ],
        ),
        end_quorum_epoch.EndQuorumEpochRequest(
            cluster_id=cluster_id,
            topics=[
                end_quorum_epoch.RequestTopicData(
                    topic_name=topic,
                    partitions=[
                        end_quorum_epoch.RequestPartitionData(
                            partition_index=partition, leader_id=2, leader_epoch=epoch
                        )
                    ],
                )
            ],
        ),
        fetch.FetchRequest(
            cluster_id=cluster_id,
            topics=[
                fetch.FetchTopic(
                    topic=topic,
                    topic_id=METADATA_TOPIC_ID if topic == TOPIC else bytes(16),
                    partitions=[
                        fetch.FetchPartition(partition=partition, current_leader_epoch=epoch, last_fetched_epoch=0)
                    ],
                )
            ],
        ),
        fetch_snapshot.FetchSnapshotRequest(
            cluster_id=cluster_id,
            topics=[
                fetch_snapshot.RequestTopicSnapshot(
                    name=topic,
                    partitions=[
                        fetch_snapshot.RequestPartitionSnapshot(partition=partition, current_leader_epoch=epoch)
                    ],
                )
            ],
        ),
    ]


def partition_error(response: Any) -> int:
    topics = response.responses if isinstance(response, fetch.FetchResponse) else response.topics
    code: int = topics[0].partitions[0].error_code
    return code


@pytest.mark.feature("KR-06")
def test_another_clusters_requests_are_refused() -> None:
    async def story(_: ReplicaCluster, ask: Ask) -> None:
        for request in requests("another", TOPIC, 0, 99):
            assert (await ask(1, request)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    play(story)


@pytest.mark.feature("KR-06")
def test_there_is_one_topic_and_one_partition() -> None:
    async def story(_: ReplicaCluster, ask: Ask) -> None:
        for topic, partition in (("orders", 0), (TOPIC, 1)):
            *others, of_snapshot = requests(CLUSTER_ID, topic, partition, 99)
            for request in others:
                assert (await ask(1, request)).error_code == ErrorCode.INVALID_REQUEST
            response = await ask(1, of_snapshot)
            assert partition_error(response) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


@pytest.mark.feature("KR-09", "KR-16")
def test_stale_epochs_are_fenced_and_get_the_address_of_the_leader() -> None:
    async def story(cluster: ReplicaCluster, ask: Ask) -> None:
        leader = await cluster.wait_for_leader()
        for node_id in cluster.voters:
            for request in requests(None, TOPIC, 0, 0)[1:]:
                response = await ask(node_id, request)
                assert partition_error(response) == ErrorCode.FENCED_LEADER_EPOCH
                (endpoint,) = response.node_endpoints
                assert endpoint.node_id == leader.core.local_id
                assert (endpoint.host, endpoint.port) == (f"node-{endpoint.node_id}", 9093)
        assert leader.is_leader

    play(story)


@pytest.mark.feature("KR-06")
def test_describe_quorum_reports_the_progress_of_every_replica() -> None:
    async def story(cluster: ReplicaCluster, ask: Ask) -> None:
        await cluster.start(101)
        leader = await cluster.wait_for_leader()
        leader_id = leader.core.local_id
        await cluster.write("b", "2")
        await trio.sleep(1.0)
        request = describe_quorum.DescribeQuorumRequest(
            topics=[
                describe_quorum.RequestTopicData(topic_name=TOPIC, partitions=[describe_quorum.RequestPartitionData()])
            ]
        )
        response = await ask(leader_id, request)
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, leader_id)
        assert partition.leader_epoch == leader.core.epoch
        assert partition.high_watermark == leader.log_end_offset
        assert [voter.replica_id for voter in partition.current_voters] == [1, 2, 3]
        assert [observer.replica_id for observer in partition.observers] == [101]
        voters = {voter.replica_directory_id for voter in partition.current_voters}
        assert voters == {bytes(16)}, "static voters are ids alone (kraft.version 0)"
        assert partition.observers[0].replica_directory_id != bytes(16), "an observer sends its own"
        wall_ms = cluster.universe.host(f"node-{leader_id}").wall_clock.now_ms()
        for replica in (*partition.current_voters, *partition.observers):
            assert replica.log_end_offset == leader.log_end_offset
            assert wall_ms - 1_000 <= replica.last_fetch_timestamp <= wall_ms
            assert wall_ms - 1_000 <= replica.last_caught_up_timestamp <= wall_ms
        assert {node.node_id: node.listeners[0].port for node in response.nodes} == dict.fromkeys((1, 2, 3), 9093)

        follower_id = next(n for n in cluster.voters if n != leader_id)
        assert partition_error(await ask(follower_id, request)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        request.topics[0].topic_name = "orders"
        assert partition_error(await ask(leader_id, request)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


@pytest.mark.feature("KR-02")
def test_the_log_can_be_fetched_with_its_leader_change_first() -> None:
    async def story(cluster: ReplicaCluster, ask: Ask) -> None:
        leader = await cluster.wait_for_leader()
        request = requests(CLUSTER_ID, TOPIC, 0, leader.core.epoch)[3]
        response = await ask(leader.core.local_id, request)
        (partition,) = response.responses[0].partitions
        assert partition.error_code == ErrorCode.NONE
        assert response.responses[0].topic_id == METADATA_TOPIC_ID
        assert bytes(partition.records) == leader.log.read(0, 1 << 20, leader.log_end_offset)

    play(story)


@pytest.mark.feature("KR-06", "KR-09")
def test_every_version_of_every_request_is_answered() -> None:
    """Versions that cannot carry a field get an answer without it; none breaks the connection or the node."""

    async def story(cluster: ReplicaCluster, ask: Ask) -> None:
        await cluster.start(101)
        leader = await cluster.wait_for_leader()
        await trio.sleep(1.0)
        describe = describe_quorum.DescribeQuorumRequest(
            topics=[
                describe_quorum.RequestTopicData(topic_name=TOPIC, partitions=[describe_quorum.RequestPartitionData()])
            ]
        )
        for epoch in (0, leader.core.epoch):
            for request in (*requests(CLUSTER_ID, TOPIC, 0, epoch), describe):
                spec = API_SPECS[ApiKey(request.API_KEY)]
                for version in range(spec.min_version, spec.max_version + 1):
                    if isinstance(request, fetch.FetchRequest) and version < 12:
                        request.topics[0].partitions[0].last_fetched_epoch = -1
                    for node_id in cluster.voters:
                        await ask(node_id, request, version)
                if isinstance(request, fetch.FetchRequest):
                    request.topics[0].partitions[0].last_fetched_epoch = 0
        assert not cluster.errors

    play(story)
