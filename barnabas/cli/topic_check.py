"""Checks that the topics of a command exist, so that a misspelt name fails at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.cli.connection import Connection
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.protocol.errors import KafkaError


async def existing_partitions(connection: Connection, topic: str) -> int:
    """Number of partitions of the topic. Raises `ClusterError` if it does not exist, `KafkaError`."""
    from barnabas.client.admin import Admin, AdminSettings

    settings = connection.settings(AdminSettings.model_fields, default_api_timeout_ms=connection.timeout_ms)
    async with Admin(**settings) as admin:
        found = await admin.describe_topics([topic])
        for error in with_missing_topics_named(found.errors).values():
            raise error
        return len(found[topic].partitions)


async def partitions_count(consumer: Consumer, topic: str) -> int:
    """Number of partitions that the consumer sees. Raises as `existing_partitions`."""
    count = len(await consumer.partitions_for(topic))
    if not count:
        raise missing(topic)
    return count


def missing(topic: str) -> ClusterError:
    return ClusterError(f"there is no topic {topic}; `barnabas topics create {topic}` creates it")


def with_missing_topics_named(errors: Mapping[str, KafkaError]) -> dict[str, Exception]:
    """Replaces UNKNOWN_TOPIC_OR_PARTITION by the error of `missing`."""
    from barnabas.client.errors import UnknownTopicOrPartitionException

    return {
        topic: missing(topic) if isinstance(error, UnknownTopicOrPartitionException) else error
        for topic, error in errors.items()
    }
