"""The status of a cluster is read from its nodes' responses."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.layout import Layout, Node
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.processes import ProcessId
from barnabas.cluster.status import PartitionStatus, QuorumStatus, read_status
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_cluster, describe_quorum, list_offsets, metadata
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from tests.barnabas.cluster.answering import AnsweringNode


def metadata_answer(brokers: list[int], leaders: dict[int, int]) -> metadata.MetadataResponse:
    partitions = [
        metadata.MetadataResponsePartition(
            partition_index=index, leader_id=leader, leader_epoch=4, replica_nodes=[1, 2], isr_nodes=[leader]
        )
        for index, leader in leaders.items()
    ]
    return metadata.MetadataResponse(
        cluster_id="a-cluster",
        brokers=[metadata.MetadataResponseBroker(node_id=broker, host="h", port=1) for broker in brokers],
        topics=[metadata.MetadataResponseTopic(name="events", partitions=partitions)],
    )


def watermark_answer(request: list_offsets.ListOffsetsRequest) -> list_offsets.ListOffsetsResponse:
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=70)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def quorum_answer(error: ErrorCode, high_watermark: int) -> describe_quorum.DescribeQuorumResponse:
    partition = describe_quorum.ResponsePartitionData(
        error_code=error,
        leader_id=101,
        leader_epoch=9,
        high_watermark=high_watermark,
        current_voters=[describe_quorum.ReplicaState(replica_id=101, last_caught_up_timestamp=1_700)],
    )
    topic = describe_quorum.ResponseTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return describe_quorum.DescribeQuorumResponse(topics=[topic])


class AnsweringCluster:
    """Two brokers and two controllers that answer; this process stands for all of theirs."""

    def __init__(self, data: Path, stack: ExitStack) -> None:
        self.known = [1, 2]
        self.leaders = {1: 2, 0: 1, 2: -1}
        self.high_watermark = 55
        self.asked_for: list[str] | None = None
        brokers: dict[ApiKey, Any] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
            ApiKey.LIST_OFFSETS: watermark_answer,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda request: ListPartitionReassignmentsResponse(),
        }
        follower = {ApiKey.DESCRIBE_QUORUM: lambda request: quorum_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}
        leader = {ApiKey.DESCRIBE_QUORUM: lambda request: quorum_answer(ErrorCode.NONE, self.high_watermark)}
        kinds = (
            ("broker", 1, brokers),
            ("broker", 2, brokers),
            ("controller", 101, follower),
            ("controller", 102, leader),
        )
        nodes = tuple(
            Node(f"{role}-{id_}", role, id_, stack.enter_context(AnsweringNode(answers)).port)
            for role, id_, answers in kinds
        )
        self.layout = Layout(data, "a-cluster", 9092, nodes)
        ourselves = ProcessId.of(os.getpid())
        assert ourselves is not None
        for node in nodes:
            ourselves.write(self.layout.pid_file(node))

    def _metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        self.asked_for = None if request.topics is None else [topic.name or "" for topic in request.topics]
        return metadata_answer([*self.known, 9], self.leaders)

    def _describe_cluster(self, request: describe_cluster.DescribeClusterRequest) -> Any:
        known = [describe_cluster.DescribeClusterBroker(broker_id=broker, host="h", port=1) for broker in self.known]
        return describe_cluster.DescribeClusterResponse(cluster_id="a-cluster", brokers=known)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AnsweringCluster]:
    with ExitStack() as stack:
        yield AnsweringCluster(tmp_path, stack)


def test_quorum_brokers_and_partitions(cluster: AnsweringCluster) -> None:
    """Broker 9 was killed a second ago: metadata still lists it."""
    status = read_status(cluster.layout)
    assert {node.state for node in status.nodes} == {"running"}
    assert status.quorum == QuorumStatus(101, 9, 55, {101: 1_700})
    assert status.brokers == [1, 2]
    assert status.partitions == [
        PartitionStatus("events", 0, 1, 4, [1, 2], [1], 70),
        PartitionStatus("events", 1, 2, 4, [1, 2], [2], 70),
        PartitionStatus("events", 2, -1, 4, [1, 2], [-1], None),
    ]


def test_only_the_topics_of_interest_are_asked_for(cluster: AnsweringCluster) -> None:
    read_status(cluster.layout, ["events"])
    assert cluster.asked_for == ["events"]
    read_status(cluster.layout)
    assert cluster.asked_for is None


def test_nodes_that_do_not_run_are_not_asked(cluster: AnsweringCluster) -> None:
    for node in cluster.layout.nodes:
        cluster.layout.pid_file(node).unlink()
    status = read_status(cluster.layout)
    assert (status.quorum, status.brokers, status.partitions) == (None, [], [])


def test_ready_means_that_every_broker_lists_every_broker(cluster: AnsweringCluster, tmp_path: Path) -> None:
    local = LocalCluster(tmp_path)
    local.layout = cluster.layout
    cluster.known = [1]
    cluster.asked_for = ["nothing"]
    assert local.not_ready() == "broker-1 does not see brokers [2] yet"
    assert cluster.asked_for == ["nothing"], "all partitions are described only when all brokers are there"
    cluster.known = [1, 2]
    assert local.not_ready() == "events-2 has no leader"
    cluster.leaders[2] = 1
    cluster.high_watermark = -1
    assert local.not_ready() == "there is no active controller"
    cluster.high_watermark = 0
    assert local.not_ready() == ""
    assert local.wait_ready() < 5
    local.layout = replace(cluster.layout, cluster_id="another")
    assert "belongs to cluster a-cluster" in local.not_ready()
