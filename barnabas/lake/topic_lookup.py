"""Topics and offsets as a cluster has them now."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.offset_listing import find_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import Isolation
from barnabas.lake.errors import TopicChanged
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import ZERO_UUID, uuid_to_string


async def find_topic(cluster: Cluster, topic: str, timeout_ms: int) -> tuple[str, list[int]]:
    """(id, partition numbers). `TopicChanged` if there is no such topic; KafkaError."""
    try:
        count = await cluster.partitions_count(topic, timeout_ms)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise TopicChanged(f"there is no topic {topic}") from None
    topic_id = cluster.topic_id(topic)
    if topic_id == ZERO_UUID:
        raise TopicChanged(f"the brokers report no id for topic {topic}; brokers from Kafka 2.8 on have topic ids")
    return uuid_to_string(topic_id), list(range(count))


async def first_offsets(cluster: Cluster, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
    """The first offset at or after a timestamp (EARLIEST, LATEST) by partition."""
    wanted = {TopicPartition(topic, partition): timestamp for partition in partitions}
    timeout_ms = cluster.settings.request_timeout_ms
    found = await find_offsets(cluster, wanted, timeout_ms, Isolation.READ_COMMITTED)
    return {each.partition: offset.offset for each, offset in found.items()}
