"""What an administrator asks of a cluster. Any broker may be asked; what is the controller's is passed on by
it.

Retriable errors are tried again until `timeout_ms`; a request whose answer was lost is too, so that a topic
may turn out to exist already by our own first try. All other errors are raised as `KafkaError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable, TopicPartition, by_topic
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from protocol.schema import Message
from runtime.channel import ChannelError, UnsupportedVersion


class ResourceType(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Admin:
    """Asks and changes. Every method raises KafkaError if it is refused or gets no answer in time."""

    def __init__(self, cluster: Cluster, timeout_ms: int = 60_000) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def create_topic(
        self,
        name: str,
        partitions_count: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatableTopicResult:
        """-1 takes the broker's default; `assignments` (partition to replicas) take the place of both
        numbers."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions_count,
            replication_factor=-1 if assignments else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in (assignments or {}).items()
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=self._cluster.settings.request_timeout_ms, validate_only=validate_only
        )
        response = await self._ask(request, lambda response: response.topics)
        result: CreatableTopicResult = response.topics[0]
        return result

    async def create_partitions(self, topic: str, total_count: int) -> None:
        """Let `topic` have `total_count` partitions."""
        wanted = CreatePartitionsTopic(name=topic, count=total_count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=self._cluster.settings.request_timeout_ms)
        await self._ask(request, lambda response: response.results)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)],
            topic_names=[name],
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )
        await self._ask(request, lambda response: response.responses)

    async def list_topics(self) -> list[MetadataResponseTopic]:
        """All topics, with partitions, leaders and replicas, by name."""
        response = await self._ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return sorted(response.topics, key=lambda topic: topic.name or "")

    async def describe_topics(self, names: Iterable[str]) -> list[MetadataResponseTopic]:
        """KafkaError UNKNOWN_TOPIC_OR_PARTITION at once if one does not exist, as that is an answer here."""
        topics = [MetadataRequestTopic(name=name) for name in names]
        response = await self._ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        for topic in response.topics:
            if topic.error_code != ErrorCode.NONE:
                raise KafkaError(error_code(topic.error_code), f"topic {topic.name}")
        result: list[MetadataResponseTopic] = response.topics
        return result

    async def describe_cluster(self, *, include_fenced_brokers: bool = False) -> DescribeClusterResponse:
        request = DescribeClusterRequest(include_fenced_brokers=include_fenced_brokers)
        response: DescribeClusterResponse = await self._ask(request)
        return response

    async def describe_quorum(self) -> DescribeQuorumResponse:
        """The voters and observers of the metadata log, and how far each has come."""
        log = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData()])
        response: DescribeQuorumResponse = await self._ask(
            DescribeQuorumRequest(topics=[log]),
            lambda response: [partition for topic in response.topics for partition in topic.partitions],
        )
        return response

    async def describe_configs(
        self, resource_type: ResourceType, name: str, keys: Sequence[str] | None = None
    ) -> list[DescribeConfigsResourceResult]:
        """All configurations of the resource, or those of `keys`, with source and synonyms."""
        resource = DescribeConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        response = await self._ask(request, lambda response: response.results, _broker_of(resource_type, name))
        result: list[DescribeConfigsResourceResult] = response.results[0].configs
        return result

    async def alter_configs(self, resource_type: ResourceType, name: str, changes: Mapping[str, str | None]) -> None:
        """Set each key of `changes` to its value; None takes it back to the default."""
        configs = [
            AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        await self._ask(request, lambda response: response.responses, _broker_of(resource_type, name))

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect the preferred replicas of `partitions` (all if None), or any replica; the outcome of each."""
        wanted = [
            TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions or ()).items()
        ]
        request = ElectLeadersRequest(
            election_type=1 if unclean else 0,
            topic_partitions=None if partitions is None else wanted,
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )
        response = await self._ask(request)
        return {
            TopicPartition(result.topic, partition.partition_id): error_code(partition.error_code)
            for result in response.replica_election_results
            for partition in result.partition_result
        }

    async def _ask(self, request: Message, items: Any = None, node_id: int | None = None) -> Any:
        """The response, once neither it nor one of its `items` bears an error."""
        cluster = self._cluster
        deadline_ms = cluster.now_ms() + self._timeout_ms
        backoff = cluster.backoff()
        while True:
            left_ms = max(1, min(deadline_ms - cluster.now_ms(), cluster.settings.request_timeout_ms))
            try:
                if node_id is None:
                    response = await cluster.call_any(request, left_ms)
                else:
                    if node_id not in cluster.nodes:
                        await cluster.refresh()
                    response = await cluster.call(node_id, request, left_ms)
                error = _error_in(response, items)
                if error is None:
                    return response
            except UnsupportedVersion as unsupported:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(unsupported)) from unsupported
            except (NoBrokerAvailable, ChannelError) as failed:
                error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(failed))
            wait_ms = backoff.next_ms()
            if not error.code.retriable or cluster.now_ms() + wait_ms >= deadline_ms:
                raise error
            await trio.sleep(wait_ms / 1000)


def _error_in(response: Any, items: Any) -> KafkaError | None:
    for part in [response, *(items(response) if items is not None else ())]:
        code = error_code(getattr(part, "error_code", 0))
        if code is not ErrorCode.NONE:
            return KafkaError(code, getattr(part, "error_message", None))
    return None


def _broker_of(resource_type: ResourceType, name: str) -> int | None:
    """A broker's own configuration is known to itself alone; the cluster-wide default (no name) to all."""
    return int(name) if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name else None
