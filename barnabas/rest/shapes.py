"""Core: the resources of a cluster in the shapes of Confluent's REST Proxy v3.

Each resource names itself (`metadata.self`, `resource_name`) and its neighbours (`related`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from barnabas.client.admin import (
        BrokerNode,
        ClusterDescription,
        ConfigEntry,
        GroupListing,
        TopicDescription,
        TopicPartitionInfo,
    )
    from barnabas.group_views.progress import Progress

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shapes:
    """Resources of one cluster, with links that begin with `base` (`http://127.0.0.1:9644/v3`)."""

    base: str
    cluster_id: str

    def cluster(self, found: ClusterDescription) -> Json:
        parts = ("brokers", "consumer-groups", "topics")
        related = {name.replace("-", "_"): self._related(name) for name in parts}
        controller = None if found.controller is None else self._related("brokers", found.controller.node_id)
        return self._resource("KafkaCluster") | {"controller": controller} | related

    def broker(self, node: BrokerNode) -> Json:
        at = ("brokers", node.node_id)
        named = {"broker_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
        return self._resource("KafkaBroker", *at) | named

    def topic(self, found: TopicDescription) -> Json:
        at = ("topics", found.name)
        return self._resource("KafkaTopic", *at) | {
            "topic_name": found.name,
            "is_internal": found.is_internal,
            "replication_factor": len(found.partitions[0].replicas) if found.partitions else 0,
            "partitions_count": len(found.partitions),
            "partitions": self._related(*at, "partitions"),
            "configs": self._related(*at, "configs"),
        }

    def partition(self, topic: str, found: TopicPartitionInfo) -> Json:
        at = ("topics", topic, "partitions", found.partition)
        leader = None if found.leader is None else self._related(*at, "replicas", found.leader)
        return self._resource("KafkaPartition", *at) | {
            "topic_name": topic,
            "partition_id": found.partition,
            "leader": leader,
            "replicas": [
                {"broker_id": it, "is_leader": it == found.leader, "is_in_sync": it in found.isr}
                for it in found.replicas
            ],
        }

    def topic_config(self, topic: str, entry: ConfigEntry) -> Json:
        return self._resource("KafkaTopicConfig", "topics", topic, "configs", entry.name) | {
            "topic_name": topic,
            "name": entry.name,
            "value": entry.value,
            "is_default": entry.is_default,
            "is_read_only": entry.is_read_only,
            "is_sensitive": entry.is_sensitive,
            "source": entry.source.name,
            "synonyms": [{"name": it.name, "value": it.value, "source": it.source.name} for it in entry.synonyms],
        }

    def group(self, found: GroupListing) -> Json:
        at = ("consumer-groups", found.group_id)
        return self._resource("KafkaConsumerGroup", *at) | {
            "consumer_group_id": found.group_id,
            "is_simple": found.is_simple_consumer_group,
            "state": found.state.name,
            "type": str(found.type),
            "coordinator": self._related("brokers", found.broker_id),
            "lags": self._related(*at, "lags"),
        }

    def lag(self, group: str, found: Progress) -> Json:
        at = ("consumer-groups", group, "lags", found.topic, "partitions", found.partition)
        return self._resource("KafkaConsumerLag", *at) | {
            "consumer_group_id": group,
            "topic_name": found.topic,
            "partition_id": found.partition,
            "current_offset": found.committed,
            "log_end_offset": found.end,
            "lag": found.lag,
            "lag_seconds": found.lag_seconds,
        }

    def listing(self, kind: str, data: Iterable[Json], *at: object) -> Json:
        """A list of resources; it is whole, so there is no next page."""
        return {"kind": f"{kind}List", "metadata": {"self": self._url(*at), "next": None}, "data": list(data)}

    def clusters(self, found: ClusterDescription) -> Json:
        metadata = {"self": f"{self.base}/clusters", "next": None}
        return {"kind": "KafkaClusterList", "metadata": metadata, "data": [self.cluster(found)]}

    def _resource(self, kind: str, *at: object) -> Json:
        names = ["", f"kafka={self.cluster_id}"]
        for name, value in zip(at[::2], at[1::2], strict=True):
            names.append(f"{str(name).removesuffix('s')}={value}")
        metadata = {"self": self._url(*at), "resource_name": "crn://" + "/".join(names)}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id}

    def _related(self, *at: object) -> Json:
        return {"related": self._url(*at)}

    def _url(self, *at: object) -> str:
        return "/".join((self.base, "clusters", self.cluster_id, *(quote(str(it), safe="") for it in at)))
