"""Topics of a cluster, requested by name, by id, or all: for members of a group and their application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.metadata import PartitionInfo, nodes_of, partitions_of
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.runtime.channel import ChannelError


@dataclass(slots=True)
class TopicDirectory:
    """The topics in one Metadata response. A `TopicsView`."""

    topics: dict[str, list[PartitionInfo]] = field(default_factory=dict)
    """Existing topics; partitions in order."""
    internal: list[str] = field(default_factory=list)
    errors: dict[str, ErrorCode] = field(default_factory=dict)
    """Errors of the other topics."""
    _names: dict[bytes, str] = field(default_factory=dict)
    _racks: dict[int, str] = field(default_factory=dict)

    def partitions_count(self, topic: str) -> int:
        return len(self.topics.get(topic, ()))

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def racks(self, topic: str) -> Mapping[int, frozenset[str]]:
        racks = self._racks
        return {
            each.partition: frozenset(racks[node] for node in each.replicas if node in racks)
            for each in self.topics.get(topic, ())
            if racks
        }

    @classmethod
    def of(cls, response: MetadataResponse) -> TopicDirectory:
        nodes = nodes_of(response)
        directory = cls(_racks={node.node_id: node.rack for node in nodes.values() if node.rack})
        for topic in response.topics:
            name, code = topic.name, error_code(topic.error_code)
            if name is None:
                continue
            if code is not ErrorCode.NONE and not topic.partitions:
                directory.errors[name] = code
                continue
            directory.topics[name] = list(partitions_of(topic, nodes).values())
            directory._names[topic.topic_id] = name
            if topic.is_internal:
                directory.internal.append(name)
        return directory


async def ask_topics(cluster: Cluster, names: Sequence[str]) -> TopicDirectory:
    """Raises as `Cluster.call_any`."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=cluster.settings.allow_auto_create_topics,
    )
    return TopicDirectory.of(await cluster.call_any(request))


async def ask_topic_ids(cluster: Cluster, topic_ids: Sequence[bytes]) -> TopicDirectory:
    """Raises as `Cluster.call_any`."""
    topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
    return TopicDirectory.of(await cluster.call_any(MetadataRequest(topics=topics, allow_auto_topic_creation=False)))


async def ask_all_topics(cluster: Cluster) -> TopicDirectory:
    """Raises as `Cluster.call_any`."""
    return TopicDirectory.of(await cluster.call_any(MetadataRequest(topics=None, allow_auto_topic_creation=False)))


async def find_topics(cluster: Cluster, names: Sequence[str], timeout_ms: int) -> TopicDirectory:
    """Like `ask_topics`, retried until a broker answers. KafkaError with REQUEST_TIMED_OUT after `timeout_ms`."""
    backoff = cluster.backoff()
    reason = ""
    with trio.move_on_after(timeout_ms / 1000):
        while True:
            try:
                return await ask_topics(cluster, names)
            except (ChannelError, NoBrokerAvailable) as error:
                reason = str(error)
            await trio.sleep(backoff.next_ms() / 1000)
    message = f"topic {', '.join(names)}: no metadata within {timeout_ms} ms: {reason}"
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
