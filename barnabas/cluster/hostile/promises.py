"""A promise that a client with bad manners can see broken: requests of one connection take effect in order.

It is looked at with topics that nobody else names, so nobody else explains what is seen.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from barnabas.cluster.hostile.aims import JUDGED_PREFIX
from barnabas.cluster.hostile.connection import HostileConnection
from barnabas.cluster.hostile.requests import Drawn
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from barnabas.cluster.hostile.client import HostileClient

T = TypeVar("T")

CHANGES = 4
LOOKS = 20
LOOK_SECONDS = 0.25
ANSWER_SECONDS = 10.0
TOPIC_RESOURCE = 2
SET = 0


async def order_is_kept(client: HostileClient, connection: HostileConnection) -> None:
    """Changes of one config that one connection pipelines: the last one holds. A later change of another config, on
    another connection, shows that a broker has received all of them.

    Raises ConnectionLost, DialFailed, TooSlowError: then nothing is known.
    """
    topic = await _judged_topic(client)
    if topic is None:
        return
    values = range(1_000_000, 1_000_000 + CHANGES)
    changes = [_change(topic, "retention.ms", value) for value in values]
    await connection.pipeline(changes)
    for change in changes:
        answer = await in_time(connection.answer(change))
        if answer.responses[0].error_code != ErrorCode.NONE:
            return
    other = await client.dial()
    try:
        sign = 1 + client.chance.getrandbits(40)
        answer = await in_time(other.call(_change(topic, "retention.bytes", sign)))
        if answer.responses[0].error_code != ErrorCode.NONE:
            return
        for _ in range(LOOKS):
            await trio.sleep(LOOK_SECONDS)
            configs = await in_time(other.call(_describe(topic)))
            found = {config.name: config.value for result in configs.results for config in result.configs}
            if found.get("retention.bytes") == str(sign):
                client.counts["orders that must be kept"] += 1
                if found.get("retention.ms") != str(values[-1]):
                    client.report(f"{topic} was given retention.ms {list(values)} in this order, and has {found}")
                return
    finally:
        other.close()


async def _judged_topic(client: HostileClient) -> str | None:
    """A new topic that only this client knows; None if it cannot be made."""
    name = f"{JUDGED_PREFIX}{client.chance.getrandbits(40):x}"
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    answer = await ask_any(client, Drawn.of(CreateTopicsRequest(topics=topics, timeout_ms=5_000), 5))
    return name if answer.topics[0].error_code == ErrorCode.NONE else None


async def find_coordinator(client: HostileClient, key: str, kind: int) -> tuple[str, int] | None:
    """None if there is none now."""
    answer = await ask_any(client, Drawn.of(FindCoordinatorRequest(key=key, key_type=kind), 3))
    return (answer.host, answer.port) if answer.error_code == ErrorCode.NONE else None


async def ask_any(client: HostileClient, drawn: Drawn) -> Any:
    """The answer of any broker, on a connection of its own."""
    connection = await client.dial()
    try:
        return await in_time(connection.call(drawn))
    finally:
        connection.close()


def _change(topic: str, name: str, value: int) -> Drawn:
    config = AlterableConfig(name=name, config_operation=SET, value=str(value))
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])
    return Drawn.of(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def _describe(topic: str) -> Drawn:
    keys = ["retention.ms", "retention.bytes"]
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=keys)
    return Drawn.of(DescribeConfigsRequest(resources=[resource]), 4)


async def in_time(answer: Awaitable[T]) -> T:
    with trio.fail_after(ANSWER_SECONDS):
        return await answer
