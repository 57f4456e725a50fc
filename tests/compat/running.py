"""A real cluster for tests: six processes on free ports, topics, and who plays which role now."""

from __future__ import annotations

import itertools
import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from barnabas.cluster.local import LocalCluster
from barnabas.cluster.probe import NoAnswer, ask
from barnabas.cluster.status import PartitionStatus
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse

_SHAPE_OFFSETS = (0, 1, 2, 100, 101, 102)
"""Where the nodes' ports lie above the base port."""
_FIRST_PORT = 21000
_LAST_PORT = 30000
_TROUBLE = re.compile(r" (?:ERROR|CRITICAL) |Traceback")
_POLL_SECONDS = 0.02
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Groups that settle soon: with Kafka's own numbers a test would mostly wait."""
_numbers = itertools.count(1)


class RunningCluster(LocalCluster):
    """Three brokers and three controllers, ready for clients."""

    @classmethod
    def start_new(cls, data: Path, overrides: Mapping[str, str] | None = None) -> RunningCluster:
        cluster = cls(data, free_base_port(), overrides)
        cluster.up()
        try:
            cluster.wait_ready()
        except BaseException:
            cluster.down()
            raise
        return cluster

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> str:
        """A topic whose leaders every broker knows. The name gets a number, so that it is new."""
        name = f"{name}-{next(_numbers)}"
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        response = ask(
            self.layout.brokers[0].port,
            CreateTopicsRequest(topics=[topic], timeout_ms=10_000),
            CreateTopicsResponse,
            timeout_seconds=20,
        )
        error = response.topics[0].error_code
        assert error == ErrorCode.NONE, f"{ErrorCode(error).name}: {response.topics[0].error_message}"
        self.wait_for(f"{name} is led", lambda: len(self.partitions(name)) == partitions and not self.not_ready())
        return name

    def partitions(self, topic: str) -> list[PartitionStatus]:
        return [each for each in self.status().partitions if each.topic == topic]

    def topics_everywhere(self) -> list[str]:
        """The topics that any broker tells of, sorted."""
        request = MetadataRequest(topics=None)
        answers = [ask(broker.port, request, MetadataResponse) for broker in self.layout.brokers]
        return sorted({topic.name or "" for answer in answers for topic in answer.topics})

    def leader_of(self, topic: str, partition: int) -> str:
        """The name of the broker that leads it."""
        leader = next(each.leader for each in self.partitions(topic) if each.partition == partition)
        assert leader >= 0, f"nobody leads {topic}-{partition}"
        return f"broker-{leader}"

    def active_controller(self) -> str:
        quorum = self.status().quorum
        assert quorum is not None, "there is no active controller"
        return f"controller-{quorum.leader}"

    def pids(self) -> dict[str, int | None]:
        return {node.name: node.pid for node in self.processes() if node.state == "running"}

    def log_sizes(self) -> dict[str, int]:
        return {node.name: self.layout.log_file(node).stat().st_size for node in self.nodes}

    def trouble(self, since: Mapping[str, int]) -> list[str]:
        """What the nodes have logged of their own mistakes since their logs had these sizes."""
        found = []
        for node in self.nodes:
            with self.layout.log_file(node).open(errors="replace") as log:
                log.seek(since.get(node.name, 0))
                found += [f"{node.name}: {line.rstrip()}" for line in log if _TROUBLE.search(line)]
        return found

    def partition_directory(self, broker: str, topic: str, partition: int) -> Path:
        return self.layout.log_directory(self.layout.node(broker)) / f"{topic}-{partition}"

    def wait_for(self, what: str, is_so: Callable[[], bool], timeout_seconds: float = 30.0) -> float:
        """Polls until it is so, whatever nodes are down; gives the seconds it took."""
        began = time.monotonic()
        while not is_so():
            assert time.monotonic() - began < timeout_seconds, f"not within {timeout_seconds:.0f} s: {what}"
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def is_answering(self, name: str) -> bool:
        from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

        request = ApiVersionsRequest(client_software_name="compat", client_software_version="1")
        try:
            ask(self.layout.node(name).port, request, ApiVersionsResponse)
        except NoAnswer:
            return False
        return True


def free_base_port() -> int:
    """The first port from which all six of a local cluster are free."""
    for base in range(_FIRST_PORT, _LAST_PORT, 10):
        if all(_is_free(base + offset) for offset in _SHAPE_OFFSETS):
            return base
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
