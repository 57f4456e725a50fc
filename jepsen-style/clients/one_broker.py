"""Asks one broker, past all cleverness of a client, so that it is known who answered.

For reads of what each broker knows for itself: an administrator asks any broker, and does not name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.security import channel_security
from barnabas.client.security_settings import SecuritySettings
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from barnabas.runtime.channel import Channel, NotSent
from barnabas.runtime.world import World
from clients.client import ClientSettings
from operations import Place

GROUP = 0
"""A key type of coordinators."""
FIND_COORDINATOR_VERSION = 2
OFFSET_FETCH_VERSION = 7
"""The last of one group each."""
TOPIC = 2
"""A resource type (ConfigResource.Type)."""


class OneBroker:
    """Another one each time, by chance. One call at a time."""

    def __init__(self, world: World, nursery: trio.Nursery, settings: ClientSettings) -> None:
        self._chance = world.chance
        self._channels: dict[str, Channel] = {}
        security = channel_security(SecuritySettings.of(settings.security), world)
        for address in settings.bootstrap_servers.split(","):
            host, _, port = address.rpartition(":")
            self._channels[address] = Channel(
                world, nursery, host, int(port), client_id=settings.client_id, security=security
            )

    async def config_of(self, topic: str, name: str, timeout_ms: int) -> tuple[str, str]:
        """(value, the broker that answered). Raises KafkaError, and ChannelError if there was no answer."""
        addresses = list(self._channels)
        start = self._chance.randrange(0, len(addresses))
        failure: NotSent | None = None
        for address in [*addresses[start:], *addresses[:start]]:
            try:
                answer: DescribeConfigsResponse = await self._channels[address].call(
                    DescribeConfigsRequest(
                        resources=[
                            DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[name])
                        ]
                    ),
                    timeout_ms=timeout_ms,
                )
            except NotSent as error:
                failure = error
                continue
            return _value(answer, topic, name), address
        assert failure is not None
        raise failure

    async def committed(
        self, group_id: str, places: Sequence[Place], turn: int, timeout_ms: int
    ) -> Mapping[Place, int]:
        """Committed offsets of a group, from the coordinator that one broker names, each broker in its turn. Raises
        KafkaError, and ChannelError if there was no answer."""
        addresses = list(self._channels)
        asked = self._channels[addresses[turn % len(addresses)]]
        question = FindCoordinatorRequest(key=group_id, key_type=GROUP)
        found: FindCoordinatorResponse = await asked.call(
            question, timeout_ms=timeout_ms, version=FIND_COORDINATOR_VERSION
        )
        _raise_if(found.error_code)
        address = f"{found.host}:{found.port}"
        if address not in self._channels:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{address} is no broker that is known")
        wanted = by_topic(TopicPartition(*place) for place in places)
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        answer: OffsetFetchResponse = await self._channels[address].call(
            OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True),
            timeout_ms=timeout_ms,
            version=OFFSET_FETCH_VERSION,
        )
        _raise_if(answer.error_code)
        offsets: dict[Place, int] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                _raise_if(partition.error_code)
                if partition.committed_offset >= 0:
                    offsets[Place(topic.name, partition.partition_index)] = partition.committed_offset
        return offsets

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


def _raise_if(code: int) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(error_code(code))


def _value(answer: DescribeConfigsResponse, topic: str, name: str) -> str:
    for result in answer.results:
        code = error_code(result.error_code)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, result.error_message or f"the configuration of {topic}")
        for config in result.configs:
            if config.name == name:
                return config.value or ""
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no {name}")
