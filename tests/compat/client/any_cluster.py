"""A cluster that our client talks to: ours of six processes, or one node of Apache Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.testing.topics import create_topic

BARNABAS = "barnabas"
APACHE_KAFKA = "apache-kafka"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class AnyCluster:
    """A running cluster. Tests share it, so they use topics, groups and transactional ids of their own."""

    name: str
    """`barnabas` or `apache-kafka`."""
    ports: tuple[int, ...]
    """Ports of its brokers on 127.0.0.1."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def replication_factor(self) -> int:
        """The number of its brokers: 3 or 1."""
        return len(self.ports)

    def new_name(self, stem: str) -> str:
        """A name that no test used before: for a topic, a group, a transactional id."""
        return f"{stem}-{next(_numbers)}"

    def create_topic(self, stem: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A new topic on all brokers, whose partitions are led; gives its name. Blocks for some milliseconds."""
        name = self.new_name(stem)
        create_topic(self.ports, name, partitions, self.replication_factor, configs)
        return name
