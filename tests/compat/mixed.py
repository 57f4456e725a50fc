"""Clusters of Apache Kafka's nodes and ours, each a process of its own, on files that name the same keys."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.cluster.local import code_environment
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.probe import NoAnswer, ask
from barnabas.kraft.format import FormatRequest, format_directories
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.uuids import random_uuid
from barnabas.settings.properties import render_properties
from barnabas.testing.cluster import NO_RETENTION
from tests.compat.apache import ARCHIVE
from tests.compat.java import FLAGS, Java

KAFKA = "apache-kafka"
OURS = "barnabas"

READY_SECONDS = 60.0
STOP_SECONDS = 40.0
OLD_METADATA = 12
"""The newest version of Metadata that Apache Kafka 3.9 answers."""
CONTROLLERS = 2
"""`endpoint_type` of DescribeCluster."""
_POLL_SECONDS = 0.05

_SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # The same for all brokers: Apache Kafka's go by their own setting, not by the topic.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.index.size.max.bytes": "1048576",
    **NO_RETENTION,
}


@dataclass(slots=True)
class MixedNode:
    """One node, running or not."""

    kind: str
    """`KAFKA` or `OURS`"""
    id: int
    port: int
    """Port for clients of a broker, of the quorum for a controller."""
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def config(self) -> Path:
        return self.directory / "node.properties"

    @property
    def log(self) -> Path:
        return self.directory / "node.log"

    def last_words(self) -> str:
        return f"{self.kind} {self.id}:\n{self.log.read_text(errors='replace')[-2000:]}"


@dataclass(slots=True)
class MixedCluster:
    """Use it as a context: all processes end with it."""

    libs: Path
    directory: Path
    cluster_id: str = field(default_factory=lambda: uuid_to_string(random_uuid(random.SystemRandom())))
    base_port: int = field(default_factory=lambda: free_base_port(range(8)))
    nodes: dict[int, MixedNode] = field(default_factory=dict)
    more_libs: tuple[Path, ...] = ()
    """Directories with further jars for Kafka's nodes."""

    def __enter__(self) -> MixedCluster:
        return self

    def __exit__(self, *error: object) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                node.process.kill()
                node.process.wait()

    # -- nodes

    def add(self, kind: str, node_id: int, roles: str, **settings: str) -> MixedNode:
        """Write the node's file; nothing is formatted or started. `settings` have `__` for each dot."""
        port = self.base_port + len(self.nodes)
        node = MixedNode(kind, node_id, port, self.directory / str(node_id))
        node.directory.mkdir(parents=True)
        self.nodes[node_id] = node
        listener = "CONTROLLER" if roles == "controller" else "PLAINTEXT"
        values = _SETTINGS | {
            "process.roles": roles,
            "node.id": str(node_id),
            "listeners": f"{listener}://127.0.0.1:{port}",
            "log.dirs": str(node.data),
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
        node.config.write_text(render_properties(values))
        return node

    def add_combined(self, node_id: int, **settings: str) -> MixedNode:
        """A node in both roles, as config/server.properties of Apache Kafka 4.3 has it: no voters in the file.
        `settings` as in `add`."""
        port, controller_port = self.base_port + len(self.nodes), self.base_port + 7
        return self.add(
            KAFKA,
            node_id,
            "broker,controller",
            listeners=f"PLAINTEXT://:{port},CONTROLLER://:{controller_port}",
            advertised__listeners=f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}",
            controller__quorum__bootstrap__servers=f"localhost:{controller_port}",
            **settings,
        )

    def format_standalone(self, node: MixedNode) -> None:
        """With Apache Kafka's own tool, at its default levels."""
        words = ("--standalone", "-t", self.cluster_id, "-c", str(node.config))
        Java(self.libs).run("storage", "format", *words)

    def format(self, node: MixedNode) -> None:
        """With our formatter: its files are Kafka's, and a JVM less has to start."""
        request = FormatRequest(self.cluster_id, node.id, [str(node.data)], bootstrap_records())
        format_directories(RealDisk(), request, random.SystemRandom())

    def start(self, node: MixedNode) -> None:
        """Returns before it serves."""
        command = [sys.executable, "-P", "-m", "barnabas.cli.main", "node", str(node.config)]
        if node.kind == KAFKA:
            archive = [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []
            libs = os.pathsep.join(f"{each}{os.sep}*" for each in (self.libs, *self.more_libs))
            command = ["java", *FLAGS, *archive, "-cp", libs, "kafka.Kafka", str(node.config)]
        with node.log.open("ab") as log:
            node.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=code_environment()
            )

    def stop(self, node: MixedNode, number: int = signal.SIGTERM) -> None:
        """Send a signal, and wait until the process has ended."""
        assert node.process is not None
        node.process.send_signal(number)
        node.process.wait(STOP_SECONDS)
        node.process = None

    def up(self, *nodes: MixedNode) -> None:
        """Format and start."""
        for node in nodes:
            self.format(node)
            self.start(node)

    # -- looking

    @property
    def brokers(self) -> list[MixedNode]:
        return [node for node in self.nodes.values() if node.id < 100]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.brokers)

    def voters(self, *nodes: MixedNode) -> str:
        return ",".join(f"{node.id}@127.0.0.1:{node.port}" for node in nodes)

    def describe_quorum(self, controller: MixedNode) -> ResponsePartitionData:
        """The quorum of the metadata log, with an error unless this controller leads it. Raises `NoAnswer`."""
        log = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])
        answer = ask(controller.port, DescribeQuorumRequest(topics=[log]), DescribeQuorumResponse)
        return answer.topics[0].partitions[0]

    def wait(self, holds: Callable[[], object], what: str, seconds: float = READY_SECONDS) -> float:
        """Seconds until it holds; fails if a node ends meanwhile."""
        began = time.monotonic()
        while True:
            with contextlib.suppress(NoAnswer):
                if holds():
                    return time.monotonic() - began
            running = [node for node in self.nodes.values() if node.process is not None]
            ended = [node for node in running if node.process is not None and node.process.poll() is not None]
            assert not ended, "\n".join(node.last_words() for node in ended)
            words = "\n".join(node.last_words() for node in self.nodes.values())
            assert time.monotonic() - began < seconds, f"not within {seconds:.0f} s: {what}\n{words}"
            time.sleep(_POLL_SECONDS)

    def wait_for_brokers(self, *nodes: MixedNode, seconds: float = READY_SECONDS) -> None:
        """Every one of them lists them all."""
        ids = {node.id for node in nodes}

        def all_listed() -> bool:
            asked = MetadataRequest(topics=[])
            answers = [ask(node.port, asked, MetadataResponse, version=OLD_METADATA) for node in nodes]
            return all({broker.node_id for broker in answer.brokers} >= ids for answer in answers)

        self.wait(all_listed, f"brokers {sorted(ids)}", seconds)

    def leader_of_quorum(self, among: MixedNode) -> int:
        """The active controller by one controller; -1 if it knows none."""
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        return ask(among.port, request, DescribeClusterResponse).controller_id

    def in_sync(self, node: MixedNode, topic: str) -> dict[int, tuple[int, int]]:
        """Partition to (leader, number of in-sync replicas), by one broker."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        (found,) = ask(node.port, request, MetadataResponse).topics
        return {each.partition_index: (each.leader_id, len(each.isr_nodes)) for each in found.partitions}

    def wait_in_sync(self, node: MixedNode, topic: str, replicas: int) -> float:
        def all_in() -> bool:
            found = self.in_sync(node, topic).values()
            return bool(found) and all(count == replicas and leader >= 0 for leader, count in found)

        return self.wait(all_in, f"{topic} is in sync {replicas} times")


def segments(node: MixedNode, prefix: str) -> dict[str, bytes]:
    """The log files below the folders with this prefix, by folder and name."""
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes() for path in sorted(node.data.glob(f"{prefix}-*/*.log"))
    }


def differing(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> Iterator[str]:
    """Names of files that are not the same."""
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) != second.get(name):
            yield f"{name}: {len(first.get(name, b''))} and {len(second.get(name, b''))} bytes"
