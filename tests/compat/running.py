"""A real cluster for tests: six processes on free ports, and what of them other people's clients may not disturb."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

from barnabas.cluster.plan import Programs
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.probe import NoAnswer, ask
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.testing.cluster import QUICK_GROUPS, ClusterForTests

__all__ = ["QUICK_GROUPS", "RunningCluster", "free_base_port"]

_TROUBLE = re.compile(r" (?:ERROR|CRITICAL) |Traceback")
_LAST_LINES = 5
_LINE_WIDTH = 200
_numbers = itertools.count(1)


class RunningCluster(ClusterForTests):
    """Three brokers and three controllers, ready for clients; nodes as users run them."""

    def __init__(self, data_dir: str | Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(data_dir, overrides)
        self._programs = Programs()

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> str:
        """A topic whose leaders every broker knows. The name gets a number, so that it is new."""
        return super().create_topic(f"{name}-{next(_numbers)}", partitions, replicas, configs)

    def topics_everywhere(self) -> list[str]:
        """Topics in any broker's metadata, sorted."""
        request = MetadataRequest(topics=None)
        answers = [ask(broker.port, request, MetadataResponse) for broker in self.layout.brokers]
        return sorted({topic.name or "" for answer in answers for topic in answer.topics})

    def pids(self) -> dict[str, int | None]:
        return {node.name: node.pid for node in self.processes() if node.state == "running"}

    def log_sizes(self) -> dict[str, int]:
        return {node.name: self.layout.log_file(node).stat().st_size for node in self.nodes}

    def trouble(self, since: Mapping[str, int]) -> list[str]:
        """Errors that the nodes have logged since their logs had these sizes."""
        found = []
        for node in self.nodes:
            with self.layout.log_file(node).open(errors="replace") as log:
                log.seek(since.get(node.name, 0))
                found += [f"{node.name}: {line.rstrip()}" for line in log if _TROUBLE.search(line)]
        return found

    def last_words(self) -> list[str]:
        """For a test that failed: how each node's process is, and the end of its log."""
        lines = []
        for node in self.processes():
            log = self.layout.log_file(self.layout.node(node.name))
            said = log.read_text(errors="replace").splitlines() if log.exists() else []
            warned = [line for line in said[:-_LAST_LINES] if " INFO " not in line][-_LAST_LINES:]
            lines += [f"{node.name}: {node.state}, process {node.pid}", *warned, *said[-_LAST_LINES:]]
        return [line[:_LINE_WIDTH] for line in lines]

    def partition_directory(self, broker: str, topic: str, partition: int) -> Path:
        return self.layout.log_directory(self.layout.node(broker)) / f"{topic}-{partition}"

    def is_answering(self, name: str) -> bool:
        request = ApiVersionsRequest(client_software_name="compat", client_software_version="1")
        try:
            ask(self.layout.node(name).port, request, ApiVersionsResponse)
        except NoAnswer:
            return False
        return True
