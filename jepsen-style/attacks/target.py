"""The cluster under attack: six processes in a temporary directory, and the well-behaved producer beside them."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attacks import quiet_producer
from attacks.process_meter import prefer
from attacks.wire import NONE, Peer
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import Node
from barnabas.cluster.local import LocalCluster, code_environment
from barnabas.cluster.ports import is_free
from barnabas.cluster.processes import ProcessId
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

READY_SECONDS = 60.0
SETTLE_SECONDS = 20.0
POLL_SECONDS = 0.2
GROUPS, TRANSACTIONS = 0, 1
"""Types of keys of FindCoordinator."""
LATEST = -1


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of the records sent in a period, in milliseconds."""

    count: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Latencies:
        if not values:
            return cls(0, math.nan, math.nan, math.nan)
        ordered = sorted(values)

        def at(part: float) -> float:
            return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

        return cls(len(ordered), at(0.5), at(0.99), ordered[-1])


class Target:
    """One cluster's life."""

    def __init__(
        self, directory: Path, base_port: int, settings: Mapping[str, str], *, preferred: bool = False
    ) -> None:
        """`preferred`: all processes run before other work on the machine. Raises ClusterError, OSError."""
        self.preferred = preferred
        self.settings = dict(settings)
        self.topics: set[str] = set()
        """Those that attacks have made."""
        self._output = directory / "quiet-producer.txt"
        self.cluster = LocalCluster(directory / "cluster", base_port, self.settings)
        _wait_for_ports(self.cluster)
        self.cluster.up()
        try:
            self.cluster.wait_ready(READY_SECONDS)
            self.pids = {node.name: self._pid_of(node) for node in self.cluster.nodes}
            self.create_topic(quiet_producer.TOPIC, quiet_producer.PARTITIONS)
            self._producer = subprocess.Popen(
                [sys.executable, "-m", "attacks.quiet_producer", self.cluster.bootstrap_servers, str(self._output)],
                stdin=subprocess.PIPE,
                env=environment_of_own_modules(),
            )
            if preferred:
                for pid in (*self.pids.values(), self._producer.pid, os.getpid()):
                    prefer(pid)
        except BaseException:
            self._end_nodes()
            raise

    def close(self) -> None:
        """Kill the producer and all nodes."""
        if self._producer.stdin is not None:
            self._producer.stdin.close()
        self._producer.kill()
        self._producer.wait()
        self._end_nodes()

    def _end_nodes(self) -> None:
        for node in self.cluster.nodes:
            process = ProcessId.read(self.cluster.layout.pid_file(node))
            if process is not None:
                process.send(signal.SIGKILL)
                process.wait_gone(SETTLE_SECONDS)

    def _pid_of(self, node: Node) -> int:
        process = ProcessId.read(self.cluster.layout.pid_file(node))
        if process is None:
            raise ClusterError(f"{node.name} has no pid file")
        return process.pid

    # ---- where things are

    @property
    def brokers(self) -> tuple[Node, ...]:
        return self.cluster.layout.brokers

    def node_at(self, port: int) -> Node:
        return next(node for node in self.cluster.nodes if node.port == port)

    def dead(self) -> list[str]:
        """Names of the nodes that have ended."""
        return [
            node.name
            for node in self.cluster.nodes
            if (process := ProcessId.read(self.cluster.layout.pid_file(node))) is None or not process.alive
        ]

    def create_topic(
        self, name: str, partitions: int = 1, copies: int = 3, configs: Mapping[str, str] | None = None
    ) -> None:
        """Returns when every partition is led."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=copies,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        with self._peer(self.brokers[0]) as peer:
            answer = peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics[0]
        if answer.error_code != NONE:
            raise ClusterError(f"topic {name} cannot be created: {answer.error_message}")
        self.topics.add(name)
        self._settle(f"every partition of {name} is led", lambda: len(self.leaders(name)) == partitions)

    def leaders(self, topic: str) -> dict[int, Node]:
        """The leaders of a topic's partitions, as the first live broker knows them."""
        with self._peer(self.live()) as peer:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            answer = peer.call(request, 12)
        ports = {broker.node_id: broker.port for broker in answer.brokers}
        return {
            partition.partition_index: self.node_at(ports[partition.leader_id])
            for partition in answer.topics[0].partitions
            if partition.leader_id in ports and partition.error_code == NONE
        }

    def coordinator(self, kind: int, key: str) -> Node:
        found: list[Node] = []

        def there_is_one() -> bool:
            with self._peer(self.live()) as peer:
                answer = peer.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators[0]
            if answer.error_code == NONE:
                found.append(self.node_at(answer.port))
            return bool(found)

        self._settle("there is a coordinator", there_is_one)
        return found[-1]

    def coordinated_at(self, kind: int, node: Node, prefix: str) -> str:
        """An id with that prefix whose coordinator is this node."""
        for number in range(1000):
            key = f"{prefix}-{number}"
            if self.coordinator(kind, key) == node:
                return key
        raise ClusterError(f"{node.name} coordinates nothing")

    def end_offset(self, topic: str, partition: int, leader: Node) -> int:
        """Raises OSError, ClusterError."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        with self._peer(leader) as peer:
            answer = peer.call(request, 7).topics[0].partitions[0]
        if answer.error_code != NONE:
            raise ClusterError(f"{topic}-{partition} has no end: error {answer.error_code}")
        return int(answer.offset)

    def live(self) -> Node:
        dead = self.dead()
        for node in self.brokers:
            if node.name not in dead:
                return node
        raise ClusterError("every broker has ended")

    def _peer(self, node: Node) -> Peer:
        deadline = time.monotonic() + SETTLE_SECONDS
        return Peer(node.port, lambda: deadline)

    def _settle(self, what: str, is_so: Callable[[], bool]) -> None:
        self.cluster.wait_until(lambda: "" if is_so() else what, SETTLE_SECONDS)

    # ---- the well-behaved producer

    def acknowledged(self) -> int:
        """Number of records acknowledged so far."""
        return sum(line.startswith("A ") for line in self._lines())

    def latencies(self, began: float, ended: float) -> Latencies:
        """Latencies of the records sent between two times. A record without a response counts until `ended`."""
        sent: dict[str, float] = {}
        values = []
        for line in self._lines():
            what, number, at = line.split()
            moment = float(at)
            if what == "S":
                if began <= moment <= ended:
                    sent[number] = moment
            elif (since := sent.pop(number, None)) is not None:
                values.append((moment - since) * 1000)
        values += [(ended - since) * 1000 for since in sent.values()]
        return Latencies.of(values)

    def readable(self) -> int | None:
        """Number of records in the quiet topic as its leaders report it; None if one of them does not answer."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            try:
                leaders = self.leaders(quiet_producer.TOPIC)
                if len(leaders) == quiet_producer.PARTITIONS:
                    return sum(self.end_offset(quiet_producer.TOPIC, index, node) for index, node in leaders.items())
            except (OSError, ClusterError):
                pass  # it is asked again: leaders move when a node has ended
            time.sleep(POLL_SECONDS)
        return None

    def _lines(self) -> list[str]:
        try:
            text = self._output.read_text()
        except FileNotFoundError:
            return []
        return text[: text.rfind("\n") + 1].splitlines()


def _wait_for_ports(cluster: LocalCluster) -> None:
    """Connections of the previous cluster may hold a port for a moment."""
    deadline = time.monotonic() + SETTLE_SECONDS
    ports = [port for node in cluster.nodes for port in (node.port, node.http_port) if port is not None]
    while not all(map(is_free, ports)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def environment_of_own_modules() -> dict[str, str]:
    """Environment of a process that runs a module of this package."""
    environment = code_environment()
    own = str(Path(__file__).resolve().parents[1])
    environment["PYTHONPATH"] = f"{own}{os.pathsep}{environment['PYTHONPATH']}"
    return environment
