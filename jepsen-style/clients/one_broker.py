"""Asks one broker, past all cleverness of a client, so that it is known who answered.

For reads of what each broker knows for itself: an administrator asks whichever broker it likes, and does not tell.
"""

from __future__ import annotations

import trio

from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from runtime.channel import Channel, NotSent
from runtime.world import World

TOPIC = 2
"""A resource type (ConfigResource.Type)."""


class OneBroker:
    """Another one each time, by chance. One call at a time."""

    def __init__(self, world: World, nursery: trio.Nursery, bootstrap_servers: str, client_id: str) -> None:
        self._chance = world.chance
        self._channels: dict[str, Channel] = {}
        for address in bootstrap_servers.split(","):
            host, _, port = address.rpartition(":")
            self._channels[address] = Channel(world, nursery, host, int(port), client_id=client_id)

    async def config_of(self, topic: str, name: str, timeout_ms: int) -> tuple[str, str]:
        """(value, who said so). Raises KafkaError, and ChannelError if there was no answer."""
        addresses = list(self._channels)
        start = self._chance.randrange(0, len(addresses))
        told: NotSent | None = None
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
                told = error
                continue
            return _value(answer, topic, name), address
        assert told is not None
        raise told

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


def _value(answer: DescribeConfigsResponse, topic: str, name: str) -> str:
    for result in answer.results:
        code = error_code(result.error_code)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, result.error_message or f"the configuration of {topic}")
        for config in result.configs:
            if config.name == name:
                return config.value or ""
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no {name}")
