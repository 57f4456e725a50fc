"""A cluster that our client talks to, whoever made it: ours of six processes, or one node of Apache Kafka."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.cluster.probe import ask
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

BARNABAS = "barnabas"
APACHE_KAFKA = "apache-kafka"
TIMEOUT_SECONDS = 20.0
_POLL_SECONDS = 0.02
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class AnyCluster:
    """A running cluster. Tests share it, so they use topics, groups and transactional ids of their own."""

    name: str
    """`barnabas` or `apache-kafka`."""
    ports: tuple[int, ...]
    """Of its brokers, on 127.0.0.1."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def replication_factor(self) -> int:
        """As many copies as it can keep: 3 or 1."""
        return len(self.ports)

    def new_name(self, stem: str) -> str:
        """A name that no test used before: for a topic, a group, a transactional id."""
        return f"{stem}-{next(_numbers)}"

    def create_topic(self, stem: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A new topic on all brokers, whose partitions are led; gives its name. Blocks for some milliseconds."""
        name = self.new_name(stem)
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=self.replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_SECONDS * 1000))
        response = ask(self.ports[0], request, CreateTopicsResponse, TIMEOUT_SECONDS)
        error = response.topics[0].error_code
        assert error == ErrorCode.NONE, f"{ErrorCode(error).name}: {response.topics[0].error_message}"
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not all(self._leads(port, name, partitions) for port in self.ports):
            assert time.monotonic() < deadline, f"{name} is not led everywhere"
            time.sleep(_POLL_SECONDS)
        return name

    @staticmethod
    def _leads(port: int, name: str, partitions: int) -> bool:
        """Whether the broker tells clients of a leader of every partition."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        [topic] = ask(port, request, MetadataResponse).topics
        return topic.error_code == ErrorCode.NONE and [part.leader_id >= 0 for part in topic.partitions] == (
            [True] * partitions
        )
