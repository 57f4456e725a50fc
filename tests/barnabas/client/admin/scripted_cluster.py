"""Three brokers that know leaders and coordinators, with scripted responses for everything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from barnabas.client.admin import Admin
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import Message, decode, encode_chunks
from barnabas.runtime.server import Request, ResponseSlot, ServerLimits, serve_listener
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.world import World
from tests.barnabas.client.fake_cluster import TELEMETRY

PORT = 9092
Answer = Callable[[int, Any], Message | bytes | None]
"""(broker, request) to the response; bytes go out as they are, None breaks the connection."""


class ScriptedCluster:
    """Brokers 1 to 3 at hosts b1 to b3."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.client = make_world("client", universe)
        """World of the administrator."""
        self.topics: dict[str, list[int]] = {}
        """The leader of each partition."""
        self.coordinators: dict[str, int] = {}
        self.answers: dict[ApiKey, Answer] = {}
        self.asked: list[tuple[int, ApiKey]] = []
        """Requests by broker, except versions and metadata."""
        self.max_versions: dict[ApiKey, int] = {}

    async def run_broker(self, broker: int, world: World) -> None:
        listener = await world.network.listen(f"b{broker}", PORT)

        def handle(request: Request, slot: ResponseSlot) -> None:
            self._handle(broker, request, slot)

        await serve_listener(world, listener, handle, ServerLimits())

    def start(self, nursery: trio.Nursery, broker: int) -> None:
        async def main(world: World) -> None:
            await self.run_broker(broker, world)

        nursery.start_soon(self.universe.run_node, f"b{broker}", main)

    def kill(self, broker: int) -> None:
        self.universe.kill(f"b{broker}")

    def alive(self) -> list[int]:
        return [broker for broker in (1, 2, 3) if self.universe.is_alive(f"b{broker}")]

    def _handle(self, broker: int, request: Request, slot: ResponseSlot) -> None:
        key = ApiKey(request.api_key)
        spec = API_SPECS[key]
        message: Any = decode(spec.request_type(), request.body, request.api_version)
        if key not in (ApiKey.API_VERSIONS, ApiKey.METADATA):
            self.asked.append((broker, key))
        known: dict[ApiKey, Answer] = {
            ApiKey.API_VERSIONS: self._versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.FIND_COORDINATOR: self._coordinators,
        }
        answer = {**known, **self.answers}[key](broker, message)
        prefix = response_prefix(request.correlation_id, spec.response_header_version(request.api_version) == 1)
        if answer is None:
            slot.abort("scripted")
        elif isinstance(answer, bytes):
            slot.fill([prefix + answer])
        else:
            slot.fill(encode_chunks(answer, request.api_version, prefix))

    def _versions(self, broker: int, message: object) -> Message:
        keys = [
            ApiVersion(
                api_key=key, min_version=spec.min_version, max_version=self.max_versions.get(key, spec.max_version)
            )
            for key, spec in API_SPECS.items()
            if key not in TELEMETRY
        ]
        return ApiVersionsResponse(api_keys=keys)

    def metadata(self, broker: int, message: MetadataRequest) -> Message:
        assert not message.allow_auto_topic_creation, "an administrator that looks must not make topics"
        names = list(self.topics) if message.topics is None else [topic.name or "" for topic in message.topics]
        brokers = [MetadataResponseBroker(node_id=node, host=f"b{node}", port=PORT) for node in self.alive()]
        return MetadataResponse(brokers=brokers, cluster_id="scripted", topics=[self._topic(name) for name in names])

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader)
            for index, leader in enumerate(self.topics[name])
        ]
        return MetadataResponseTopic(name=name, partitions=partitions)

    def _coordinators(self, broker: int, message: FindCoordinatorRequest) -> Message:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node, host=f"b{node}", port=PORT)
                if (node := self.coordinators.get(key, 0))
                else Coordinator(key=key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
                for key in message.coordinator_keys
            ]
        )


Story = Callable[[ScriptedCluster, Admin], Awaitable[None]]


def play(story: Story, **options: Any) -> None:
    """Play a story with an administrator and three brokers."""

    async def run(universe: Universe) -> None:
        scripted = ScriptedCluster(universe)
        async with trio.open_nursery() as nursery:
            for broker in (1, 2, 3):
                scripted.start(nursery, broker)
            await trio.sleep(0.1)
            settings: dict[str, Any] = {"request_timeout_ms": 2_000, "retry_backoff_ms": 20, **options}
            async with Admin(bootstrap_servers="b1:9092,b2:9092,b3:9092", world=scripted.client, **settings) as admin:
                await story(scripted, admin)
            nursery.cancel_scope.cancel()

    run_simulation(1, run)
