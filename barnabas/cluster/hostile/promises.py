"""Two promises that a client with bad manners can see broken: what was committed stays, and order is kept.

Both are looked at with groups and topics that nobody else names, so nobody else explains what is seen.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from barnabas.cluster.hostile.connection import HostileConnection
from barnabas.cluster.hostile.requests import Drawn
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

if TYPE_CHECKING:
    from barnabas.cluster.hostile.client import HostileClient

T = TypeVar("T")

JUDGED_PREFIX = "judged-"
"""How topics and groups begin that are looked at; a hostile client's random requests never change them."""
COMMITS = 200
"""More than a connection has under way in a node."""
CHANGES = 4
LOOKS = 20
LOOK_SECONDS = 0.25
ANSWER_SECONDS = 10.0
TOPIC_RESOURCE = 2
GROUP = 0
SET = 0


async def what_is_committed_stays(client: HostileClient) -> None:
    """A connection pipelines commits and is closed; the next one commits something else, which must stay.

    Raises ConnectionLost, DialFailed, TooSlowError: then nothing is known.
    """
    topic = await _judged_topic(client)
    group = f"{JUDGED_PREFIX}{client.chance.getrandbits(40):x}"
    coordinator = await find_coordinator(client, group, GROUP)
    if topic is None or coordinator is None:
        return
    closed = await client.dial_at(coordinator)
    await closed.pipeline([_commit(group, topic, offset) for offset in range(COMMITS)])
    await client.pause()
    closed.close()
    last = COMMITS + client.chance.randrange(1000)
    connection = await client.dial_at(coordinator)
    try:
        answer = await in_time(connection.call(_commit(group, topic, last)))
        if _error_of(answer) != ErrorCode.NONE:
            return
        client.counts["commits that must stay"] += 1
        for _ in range(LOOKS):
            await trio.sleep(LOOK_SECONDS)
            wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
            found = await in_time(
                connection.call(Drawn.of(OffsetFetchRequest(group_id=group, topics=wanted, require_stable=True), 7))
            )
            offset = found.topics[0].partitions[0].committed_offset if found.topics else last
            if found.error_code == _error_of(found) == ErrorCode.NONE and offset != last:
                client.report(
                    f"offset {last} was committed by {group}, and {offset} holds: a closed connection took it back"
                )
                return
    finally:
        connection.close()


async def order_is_kept(client: HostileClient, connection: HostileConnection) -> None:
    """Changes of one config that one connection pipelines: the last one holds. A later change of another config, on
    another connection, shows that a broker has heard of all of them.

    Raises ConnectionLost, DialFailed, TooSlowError: then nothing is known.
    """
    topic = await _judged_topic(client, used_up=True)
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


async def _judged_topic(client: HostileClient, *, used_up: bool = False) -> str | None:
    """A topic that only this client knows; with `used_up` the next one is another. None if it cannot be made."""
    if client.judged_topic is None:
        name = f"{JUDGED_PREFIX}{client.chance.getrandbits(40):x}"
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=5_000
        )
        answer = await ask_any(client, Drawn.of(request, 5))
        if answer.topics[0].error_code != ErrorCode.NONE:
            return None
        client.judged_topic = name
    topic = client.judged_topic
    if used_up:
        client.judged_topic = None
    return topic


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


def _commit(group: str, topic: str, offset: int) -> Drawn:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    return Drawn.of(OffsetCommitRequest(group_id=group, topics=topics), 7)


def _change(topic: str, name: str, value: int) -> Drawn:
    config = AlterableConfig(name=name, config_operation=SET, value=str(value))
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])
    return Drawn.of(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def _describe(topic: str) -> Drawn:
    keys = ["retention.ms", "retention.bytes"]
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=keys)
    return Drawn.of(DescribeConfigsRequest(resources=[resource]), 4)


def _error_of(answer: object) -> int:
    """Of the only partition of the only topic."""
    topics = getattr(answer, "topics", [])
    return int(topics[0].partitions[0].error_code) if topics and topics[0].partitions else int(ErrorCode.NONE)


async def in_time(answer: Awaitable[T]) -> T:
    with trio.fail_after(ANSWER_SECONDS):
        return await answer
