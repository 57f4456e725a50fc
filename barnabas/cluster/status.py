"""Status of a cluster, from the nodes themselves: processes, quorum, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from barnabas.cluster.keeping import KeepFile
from barnabas.cluster.layout import Layout, Node
from barnabas.cluster.probe import Key, NoAnswer, ask
from barnabas.cluster.processes import ProcessId, State, state_of

_METADATA_TOPIC = "__cluster_metadata"
_LATEST = -1
_PROBE_SECONDS = 1.0
_DESCRIPTION_SECONDS = 30.0
"""Longest wait for a description of all partitions: those of tens of thousands take seconds on a busy machine."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node's process."""

    name: str
    role: str
    port: int
    state: str
    """A `processes.State` in lower case: running, paused, stopped, dead."""
    pid: int | None
    restarts: int = 0
    """Number of times that it ended by itself and was restarted, since its last start."""


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """The quorum, as its leader reports it."""

    leader: int
    epoch: int
    high_watermark: int
    voters: dict[int, int] = field(default_factory=dict)
    """Time at which each controller last had all of the metadata log, in milliseconds since 1970; -1: not yet."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition as a broker's metadata and its leader's log have it."""

    topic: str
    partition: int
    leader: int
    """-1: none."""
    epoch: int
    replicas: list[int]
    isr: list[int]
    high_watermark: int | None
    """None if the leader did not answer."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The whole status; parts that no node could report are empty."""

    cluster_id: str
    bootstrap_servers: str
    nodes: list[NodeStatus]
    quorum: QuorumStatus | None = None
    brokers: list[int] = field(default_factory=list)
    """The brokers in the metadata of clients: registered and not fenced."""
    partitions: list[PartitionStatus] = field(default_factory=list)
    reassigned: int = 0
    """Number of partitions that are being moved to other brokers."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_processes(layout: Layout) -> list[NodeStatus]:
    """The nodes' processes, without asking any."""
    statuses = []
    for node in layout.nodes:
        state = state_of(layout.pid_file(node))
        process = ProcessId.read(layout.pid_file(node)) if state in (State.RUNNING, State.PAUSED) else None
        kept = KeepFile.beside(layout.pid_file(node)).read()
        pid, restarts = process.pid if process else None, kept[1] if kept else 0
        statuses.append(NodeStatus(node.name, node.role, node.port, state.value, pid, restarts))
    return statuses


def read_status(layout: Layout, topics: Sequence[str] | None = None, key: Key | None = None) -> ClusterStatus:
    """Asks the nodes that run, for the partitions of `topics` (all if None); never fails because one does not
    answer.
    """
    nodes = read_processes(layout)
    running = {status.name for status in nodes if status.state == State.RUNNING.value}
    quorum = quorum_status((node for node in quorum_answerers(layout, key) if node.name in running), key)
    answering = [node for node in layout.brokers if node.name in running]
    brokers, partitions = _partitions(answering, topics, key)
    reassigned = _reassigned(answering, key)
    return ClusterStatus(layout.cluster_id, layout.bootstrap_servers, nodes, quorum, brokers, partitions, reassigned)


def _reassigned(brokers: Iterable[Node], key: Key | None) -> int:
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )

    request = ListPartitionReassignmentsRequest(topics=None)
    for broker in brokers:
        try:
            response = ask(broker.port, request, ListPartitionReassignmentsResponse, _PROBE_SECONDS, key)
        except NoAnswer:
            continue
        return sum(len(topic.partitions) for topic in response.topics)
    return 0


def quorum_answerers(layout: Layout, key: Key | None) -> tuple[Node, ...]:
    """The nodes to ask about the quorum. Controllers of a secure cluster answer nodes only."""
    return layout.quorum_answerers if key is None else layout.brokers


def quorum_status(nodes: Iterable[Node], key: Key | None = None) -> QuorumStatus | None:
    """The quorum, as the active controller reports it; None while there is none, or it does not know its high
    watermark yet.
    """
    from barnabas.protocol.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        RequestPartitionData,
        RequestTopicData,
    )

    request = DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name=_METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])]
    )
    for node in nodes:
        try:
            response = ask(node.port, request, DescribeQuorumResponse, _PROBE_SECONDS, key)
        except NoAnswer:
            continue
        for topic in response.topics:
            for partition in topic.partitions:
                if not response.error_code and not partition.error_code and partition.high_watermark >= 0:
                    voters = {each.replica_id: each.last_caught_up_timestamp for each in partition.current_voters}
                    return QuorumStatus(partition.leader_id, partition.leader_epoch, partition.high_watermark, voters)
    return None


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The cluster as one broker sees it."""

    cluster_id: str
    brokers: frozenset[int]
    """Registered and not fenced."""


def broker_view(port: int, key: Key | None = None) -> BrokerView:
    """Raises `NoAnswer`."""
    from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

    # Metadata would list a broker that was killed for some seconds more.
    response = ask(port, DescribeClusterRequest(endpoint_type=1), DescribeClusterResponse, _PROBE_SECONDS, key)
    return BrokerView(response.cluster_id, frozenset(each.broker_id for each in response.brokers))


def leaderless_partitions(port: int, key: Key | None = None) -> list[str]:
    """Partitions without a leader, `topic-0`, in the metadata that the broker at `port` returns to clients.

    The broker describes all partitions, so ask it when nothing cheaper is missing. Raises `NoAnswer`.
    """
    from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

    response = ask(port, MetadataRequest(topics=None), MetadataResponse, _DESCRIPTION_SECONDS, key)
    return [
        f"{topic.name}-{partition.partition_index}"
        for topic in response.topics
        for partition in topic.partitions
        if partition.leader_id < 0
    ]


def _partitions(
    brokers: list[Node], topics: Sequence[str] | None, key: Key | None
) -> tuple[list[int], list[PartitionStatus]]:
    from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    for broker in brokers:
        try:
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            response = ask(broker.port, request, MetadataResponse, _DESCRIPTION_SECONDS, key)
            alive = sorted(broker_view(broker.port, key).brokers)
        except NoAnswer:
            continue
        leaders = {
            (topic.name or "", partition.partition_index): partition.leader_id
            for topic in response.topics
            for partition in topic.partitions
        }
        watermarks = _high_watermarks({node.id: node.port for node in brokers}, leaders, key)
        partitions = [
            PartitionStatus(
                topic.name or "",
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                list(partition.replica_nodes),
                list(partition.isr_nodes),
                watermarks.get((topic.name or "", partition.partition_index)),
            )
            for topic in sorted(response.topics, key=lambda each: each.name or "")
            for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]
        return alive, partitions
    return [], []


def _high_watermarks(
    ports: dict[int, int], leaders: dict[tuple[str, int], int], key: Key | None
) -> dict[tuple[str, int], int]:
    """One question to each leader for all its partitions."""
    from barnabas.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
    )

    watermarks: dict[tuple[str, int], int] = {}
    for leader, port in ports.items():
        led: dict[str, list[ListOffsetsPartition]] = {}
        for (topic, partition), node in leaders.items():
            if node == leader:
                led.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=_LATEST))
        if not led:
            continue
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in led.items()],
        )
        try:
            response = ask(port, request, ListOffsetsResponse, _PROBE_SECONDS, key)
        except NoAnswer:
            continue
        for found in response.topics:
            for offset in found.partitions:
                if not offset.error_code:
                    watermarks[found.name, offset.partition_index] = offset.offset
    return watermarks
