"""One broker with scripted responses, for tests of connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import Message, decode, encode_chunks
from barnabas.runtime.server import Request, ResponseSlot, ServerLimits, serve_listener
from barnabas.runtime.simulated import Universe
from barnabas.runtime.world import Connection, ConnectionLost, World

PORT = 9092

Answer = Callable[[Any], Message | None]
"""Returns the response to a request; None: no response, ever."""


class PlainNode:
    """Serves the APIs it has answers for."""

    def __init__(self, answers: Mapping[ApiKey, Answer], versions: Mapping[ApiKey, tuple[int, int]] | None = None):
        self.answers = dict(answers)
        self.versions = dict(versions or {})
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self.handshakes: list[float] = []
        """Times."""
        self.asked: list[tuple[float, ApiKey, Any]] = []
        """(when, what, the request)"""

    def start(self, nursery: trio.Nursery, universe: Universe, name: str) -> None:
        async def main(world: World) -> None:
            listener = await world.network.listen(name, PORT)
            await serve_listener(world, listener, self._handle, ServerLimits())

        nursery.start_soon(universe.run_node, name, main)

    def times(self, key: ApiKey) -> list[float]:
        """Times of requests to this API."""
        return [when for when, asked, _ in self.asked if asked is key]

    def _handle(self, request: Request, slot: ResponseSlot) -> None:
        key = ApiKey(request.api_key)
        spec = API_SPECS[key]
        message = decode(spec.request_type(), request.body, request.api_version)
        if key is ApiKey.API_VERSIONS:
            self.handshakes.append(trio.current_time())
            answer: Message | None = self._versions()
        else:
            self.asked.append((trio.current_time(), key, message))
            answer = self.answers[key](message)
        if answer is not None:
            flexible = spec.response_header_version(request.api_version) == 1
            prefix = response_prefix(request.correlation_id, flexible)
            slot.fill(encode_chunks(answer, request.api_version, prefix))

    def _versions(self) -> Message:
        ranges = {
            key: self.versions.get(key, (API_SPECS[key].min_version, API_SPECS[key].max_version))
            for key in [ApiKey.API_VERSIONS, *self.answers]
        }
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()
            ],
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=0, max_version_level=level)
                for name, level in self.features.items()
            ],
            finalized_features_epoch=self.features_epoch,
        )


def metadata(
    brokers: Mapping[int, str], topics: Mapping[str, int] | None = None, *, racks: Mapping[int, str] | None = None
) -> MetadataResponse:
    """Brokers by id and host, topics with so many partitions that the first broker leads."""
    first = min(brokers, default=-1)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=host, port=PORT, rack=(racks or {}).get(node))
            for node, host in brokers.items()
        ],
        controller_id=first,
        cluster_id="plain",
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=name.encode().ljust(16, b"-"),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=first, leader_epoch=3, replica_nodes=[1, 2], isr_nodes=[1]
                    )
                    for index in range(count)
                ],
            )
            for name, count in (topics or {}).items()
        ],
    )


async def listen_badly(world: World, host: str, treat: Callable[[Connection], Any]) -> None:
    """A listener of another kind: each connection is handled by `treat`, and closed afterwards."""
    listener = await world.network.listen(host, PORT)

    async def live(connection: Connection) -> None:
        try:
            await treat(connection)
        except ConnectionLost:
            pass  # the peer has seen enough
        finally:
            connection.close()

    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(live, await listener.accept())
