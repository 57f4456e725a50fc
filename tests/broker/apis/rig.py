"""Whole clusters under virtual time, and a client that says exactly what a test wants said.

`@on_cluster()` runs an async test in a universe of its own, with a cluster that is up. Shapes: one broker and one
controller, or three brokers and one controller.
"""

from __future__ import annotations

import functools
import inspect
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from barnabas.broker.parts import BrokerParts
from barnabas.broker.replication.partition import Partition
from barnabas.cluster.simulated import BROKER_PORT, CONTROLLER_PORT, SettingsOf, SimulatedCluster
from barnabas.kraft.metadata.image import PartitionImage
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.builder import BatchOptions, build_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.protocol.schema import Message, encode
from barnabas.runtime.channel import Channel
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.simulated.work import WorkCounter
from barnabas.runtime.world import Connection, ConnectionLost

SHAPES = Path(__file__).parent / "shapes"
PATIENCE_SECONDS = 120
"""Virtual time after which a story counts as hanging."""

Story = Callable[..., Awaitable[None]]


def on_cluster(
    brokers: int = 1, seed: int = 1, *, counts_work: bool = False, **overrides: str
) -> Callable[[Story], Callable[..., None]]:
    """Run the test as `story(rig, ...)` on a cluster; `overrides` are settings, `__` for each dot. With `counts_work`
    the work of steps is counted (`Rig.steps`)."""
    settings = {name.replace("__", "."): value for name, value in overrides.items()}

    def decorate(story: Story) -> Callable[..., None]:
        @functools.wraps(story)
        def test(**arguments: Any) -> None:
            play(functools.partial(story, **arguments), brokers, seed, settings, counts_work=counts_work)

        signature = inspect.signature(story)
        parameters = list(signature.parameters.values())[1:]
        test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return test

    return decorate


def play(
    story: Story, brokers: int, seed: int, settings: Mapping[str, str] | SettingsOf, *, counts_work: bool = False
) -> None:
    shape = SHAPES / {1: "one", 3: "three"}[brokers]

    async def run(universe: Universe) -> None:
        steps: dict[str, list[int]] = {}
        if counts_work:
            universe.count_work = WorkCounter(lambda name, calls: steps.setdefault(name, []).append(calls))
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(universe, nursery, settings, shape)
            cluster.up()
            await cluster.wait_ready()
            rig = Rig(universe, nursery, cluster)
            rig.steps = steps
            with trio.fail_after(PATIENCE_SECONDS):
                await story(rig)
            nursery.cancel_scope.cancel()

    run_simulation(seed, run)


class Rig:
    """A cluster and one client host. Nodes go by their ids: brokers 1 to 3, controller 101."""

    def __init__(self, universe: Universe, nursery: trio.Nursery, cluster: SimulatedCluster) -> None:
        self.universe = universe
        self.nursery = nursery
        self.cluster = cluster
        self.world = make_world("client", universe)
        self.steps: dict[str, list[int]] = {}
        """The calls of each step of a request so far, by API; see `counts_work`."""
        self._channels: dict[int, Channel] = {}

    def name(self, node: int) -> str:
        return f"broker-{node}" if node < 100 else f"controller-{node}"

    def port(self, node: int) -> int:
        return BROKER_PORT if node < 100 else CONTROLLER_PORT

    def channel(self, node: int) -> Channel:
        """A connection of its own."""
        return Channel(self.world, self.nursery, self.name(node), self.port(node), client_id="story")

    async def ask(self, node: int, request: Message, version: int | None = None, timeout_ms: int = 60_000) -> Any:
        """The answer of a node, over one connection to each."""
        if node not in self._channels:
            self._channels[node] = self.channel(node)
        return await self._channels[node].call(request, timeout_ms=timeout_ms, version=version)

    def broker(self, node: int) -> BrokerParts:
        services = self.cluster.node_of(node).broker
        assert services is not None, f"broker {node} is not up"
        return services

    def partition(self, node: int, topic: str, index: int = 0) -> Partition:
        found = self.broker(node).partitions.find(topic, index)
        assert found is not None, f"{topic}-{index} is not on broker {node}"
        return found

    def placed(self, node: int, topic: str, index: int = 0) -> PartitionImage:
        """A partition as that broker's metadata has it."""
        placed = self.broker(node).metadata.partition(topic, index)
        assert placed is not None
        return placed

    def leader(self, topic: str, index: int = 0) -> int:
        """By the metadata of the first broker that is up."""
        up = next(node.node.id for node in self.cluster.brokers if node.broker is not None)
        return self.placed(up, topic, index).leader

    async def until(self, holds: Callable[[], object], seconds: float = 60) -> None:
        with trio.fail_after(seconds):
            while not holds():
                await trio.sleep(0.01)

    async def create(self, name: str, partitions: int = 1, replicas: int | Sequence[int] = 1, **configs: str) -> bytes:
        """A topic that every broker knows, with its replicas; gives its id. `replicas`: how many, or which for all."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas if isinstance(replicas, int) else -1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=it) for key, it in configs.items()],
        )
        if not isinstance(replicas, int):
            topic.num_partitions = -1
            topic.assignments = [
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index in range(partitions)
            ]
        first = next(node.node.id for node in self.cluster.brokers if node.broker is not None)
        response = await self.ask(first, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        (result,) = response.topics
        assert result.error_code == ErrorCode.NONE, result
        await self.until(lambda: all(self._knows(node.broker, name) for node in self.cluster.brokers))
        return bytes(result.topic_id)

    def _knows(self, broker: BrokerParts | None, name: str) -> bool:
        if broker is None:
            return True
        topic = broker.metadata.image.topics.by_name.get(name)
        return topic is not None and all(
            broker.settings.node_id not in placed.replicas or broker.partitions.find(name, index) is not None
            for index, placed in topic.partitions.items()
        )

    async def configure(self, kind: int, name: str, node: int = 1, **configs: str) -> None:
        """Set configs of a topic (2) or broker (4), and wait until the brokers know."""
        changes = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        response = await self.ask(node, IncrementalAlterConfigsRequest(resources=[resource]))
        assert response.responses[0].error_code == 0, response
        wanted = {key.replace("_", "."): value for key, value in configs.items()}

        def arrived() -> bool:
            images = [it.broker.metadata.image for it in self.cluster.brokers if it.broker is not None]
            return all(wanted.items() <= image.config(kind, name).items() for image in images)

        await self.until(arrived)

    async def produce(  # noqa: PLR0913 - what a test may want to say of one batch
        self,
        topic: str,
        batch: bytes | None = None,
        *,
        index: int = 0,
        acks: int = -1,
        node: int | None = None,
        version: int = 12,
        timeout_ms: int = 5000,
        topic_id: bytes = bytes(16),
    ) -> PartitionProduceResponse:
        """Produce one batch to the leader, or to `node`."""
        request = produce_request(topic, batch_of("value") if batch is None else batch, index, acks, timeout_ms)
        request.topic_data[0].topic_id = topic_id
        response = await self.ask(self.leader(topic, index) if node is None else node, request, version)
        (answer,) = response.responses[0].partition_responses
        assert isinstance(answer, PartitionProduceResponse)
        return answer

    async def fetch(
        self, topic: str, offset: int = 0, *, index: int = 0, node: int | None = None, **more: Any
    ) -> PartitionData:
        """One partition from the leader, or from `node`."""
        request = fetch_request(topic, offset, index, **more)
        response = await self.ask(self.leader(topic, index) if node is None else node, request, 12)
        assert response.error_code == 0
        (data,) = response.responses[0].partitions
        assert isinstance(data, PartitionData)
        return data

    async def raw(self, node: int) -> Raw:
        return Raw(await self.world.network.dial(self.name(node), self.port(node)))


class Raw:
    """A connection that sends what it likes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                sent = self._connection.send_now([view])
                view = view[sent:]
                if view:
                    await self._connection.wait_writable()
        except ConnectionLost:
            return  # the node has closed it, which is what `was_closed` will find

    async def send_frame(self, body: bytes) -> None:
        await self.send(struct.pack(">i", len(body)) + body)

    async def was_closed(self) -> bool:
        """True if the node closes the connection without a response."""
        try:
            await self._connection.receive_into(memoryview(bytearray(1)))
        except ConnectionLost:
            return True
        return False

    async def receive_frame(self) -> bytes | None:
        """An answer; None if the node closes the connection instead."""
        try:
            (size,) = struct.unpack(">i", await self._receive(4))
            return await self._receive(size)
        except ConnectionLost:
            return None

    async def _receive(self, count: int) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            view = view[await self._connection.receive_into(view) :]
        return bytes(data)

    def close(self) -> None:
        self._connection.close()


def frame_of(request: Message, version: int, correlation_id: int = 7) -> bytes:
    """Header and body of a request."""
    spec = API_SPECS[ApiKey(request.API_KEY)]
    header = RequestHeader(
        request_api_key=spec.key, request_api_version=version, correlation_id=correlation_id, client_id="raw"
    )
    return encode(header, spec.request_header_version(version)) + encode(request, version)


NOW_MS = 1_750_000_000_000


def batch_of(*values: str | bytes, key: bytes | None = None, timestamp: int = NOW_MS, **options: Any) -> bytes:
    """A batch as producers send it."""
    given: BatchOptions = options  # type: ignore[assignment]
    return build_batch(
        [Record(0, timestamp, key, it.encode() if isinstance(it, str) else it, ()) for it in values], **given
    )


def produce_request(
    topic: str, batch: bytes | None, index: int = 0, acks: int = -1, timeout_ms: int = 5000
) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=batch)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        transactional_id=None,
    )


def fetch_request(
    topic: str | bytes, offset: int = 0, index: int = 0, *, partition_max_bytes: int = 1 << 20, **more: Any
) -> FetchRequest:
    """`more`: fields of the request, or of its partition."""
    ours = {"current_leader_epoch", "last_fetched_epoch", "log_start_offset"}
    asked = FetchPartition(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        **{name: more.pop(name) for name in list(more) if name in ours},
    )
    named = FetchTopic(partitions=[asked])
    if isinstance(topic, str):
        named.topic = topic
    else:
        named.topic_id = topic
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24, "session_epoch": -1}
    return FetchRequest(topics=[named], **{**fields, **more})


def values_in(data: PartitionData) -> list[str]:
    """The values of all whole batches that were fetched."""
    values: list[str] = []
    rest = bytes(data.records or b"")
    while rest:
        size = 12 + int.from_bytes(rest[8:12], "big")
        values += [(record.value or b"").decode() for record in decode_records(rest[:size])]
        rest = rest[size:]
    return values
