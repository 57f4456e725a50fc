"""Topics that a command reads or writes have to be there: nobody waits for one that was misspelt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.cli.connection import Connection
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer import Consumer
    from protocol.errors import KafkaError


async def existing_partitions(connection: Connection, topic: str) -> int:
    """How many partitions the topic has. Raises `ClusterError` at once if there is no such topic, KafkaError."""
    from barnabas.client.admin import Admin, AdminSettings

    settings = connection.settings(AdminSettings.model_fields, default_api_timeout_ms=connection.timeout_ms)
    async with Admin(**settings) as admin:
        found = await admin.describe_topics([topic])
        for error in missing_as_told(found.errors).values():
            raise error
        return len(found[topic].partitions)


async def partitions_count(consumer: Consumer, topic: str) -> int:
    """How many partitions a consumer sees of the topic. Raises as `existing_partitions`."""
    count = len(await consumer.partitions_for(topic))
    if not count:
        raise missing(topic)
    return count


def missing(topic: str) -> ClusterError:
    """There is no such topic."""
    return ClusterError(f"there is no topic {topic}; `barnabas topics create {topic}` makes it")


def missing_as_told(errors: Mapping[str, KafkaError]) -> dict[str, Exception]:
    """The same errors by topic; one that says that there is no such topic also says what would make it."""
    from barnabas.client.errors import UnknownTopicOrPartitionException

    return {
        topic: missing(topic) if isinstance(error, UnknownTopicOrPartitionException) else error
        for topic, error in errors.items()
    }
