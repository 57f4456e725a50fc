"""Whole controllers in a simulated universe, and brokers that consist of a port and a channel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from barnabas.kraft.commit_feed import CommittedBatch
from barnabas.kraft.format import FormatRequest, format_directories
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.kraft.metadata.features import SUPPORTED_FEATURES
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.principals import LOOPBACK, written_principal
from barnabas.kraft.replica_config import ReplicaConfig
from barnabas.kraft.sole_controller import run_controller
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, ResponseHeader
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.schema import Message, decode, decode_prefix, encode
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.channel import Channel, ChannelError
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import ConnectionLost, World
from barnabas.settings.controller import ControllerSettings, load_controller_settings

CLUSTER_ID = "bWV0YWRhdGEtY2x1c3Rlcg"
PORT = 9093
BROKER_PORT = 9092


def settings_of(node_id: int, ids: tuple[int, ...], **overrides: str) -> ControllerSettings:
    voters = ",".join(f"{it}@controller-{it}:{PORT}" for it in ids)
    text = f"""
process.roles=controller
node.id={node_id}
listeners=CONTROLLER://controller-{node_id}:{PORT}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs=/data
min.insync.replicas=2
default.replication.factor=3
"""
    changed = {name.replace("_", "."): value for name, value in overrides.items()}
    return load_controller_settings(text, "controller.properties", changed)[0]


class Broker:
    """A broker as the controllers see one: a port that answers and heartbeats over a channel of its own."""

    def __init__(self, quorum: Quorum, broker_id: int) -> None:
        self.quorum = quorum
        self.id = broker_id
        self.epoch = -1
        self.fenced = True
        self.serving = trio.Event()
        self.pause = False
        self.listeners = [Listener(name="PLAINTEXT", host=f"broker-{broker_id}", port=BROKER_PORT)]
        """Advertised listeners; it listens on its own host."""

    async def live(self, world: World) -> None:
        """Listen, register, heartbeat until killed."""
        listener = await world.network.listen(f"broker-{self.id}", BROKER_PORT)
        async with trio.open_nursery() as nursery:

            async def accept() -> None:
                while True:
                    try:
                        (await listener.accept()).close()
                    except ConnectionLost:
                        continue

            nursery.start_soon(accept)
            await self._register(world, nursery)
            while True:
                if not self.pause:
                    await self._heartbeat(world, nursery)
                await trio.sleep(0.5)

    async def _register(self, world: World, nursery: trio.Nursery) -> None:
        request = BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=random_uuid(world.chance),
            rack=None,
            listeners=self.listeners,
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[bytes([self.id, 1]) * 8],
        )
        while True:
            response = await self.quorum.ask_active(world, nursery, f"broker-{self.id}", request)
            if response.error_code == ErrorCode.NONE:
                self.epoch = response.broker_epoch
                return
            await trio.sleep(0.1)

    async def _heartbeat(self, world: World, nursery: trio.Nursery) -> None:
        request = BrokerHeartbeatRequest(broker_id=self.id, broker_epoch=self.epoch, current_metadata_offset=1 << 40)
        response = await self.quorum.ask_active(world, nursery, f"broker-{self.id}", request)
        if response.error_code == ErrorCode.NONE:
            self.fenced = response.is_fenced
            if not self.fenced:
                self.serving.set()


class Quorum:
    """Controllers `controller-<id>`, formatted and started by `start`."""

    def __init__(self, universe: Universe, nursery: trio.Nursery, ids: tuple[int, ...]) -> None:
        self.universe = universe
        self.nursery = nursery
        self.ids = ids
        self.running: dict[int, trio.Event] = {}
        self.brokers: dict[int, Broker] = {}
        self._channels: dict[tuple[str, int], Channel] = {}

    async def start(self, node_id: int, *, formatted: bool = True, **overrides: str) -> None:
        """Returns when it listens."""
        await self.nursery.start(self._live, node_id, formatted, overrides)

    async def _live(
        self,
        node_id: int,
        formatted: bool,
        overrides: dict[str, str],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        stop = self.running[node_id] = trio.Event()

        async def main(world: World) -> None:
            if formatted:
                request = FormatRequest(CLUSTER_ID, node_id, ["/data"], bootstrap_records(), ignore_formatted=True)
                format_directories(world.disk, request, world.chance)
                world.disk.sync_directory("/")
            settings = settings_of(node_id, self.ids, **overrides)
            await run_controller(settings, world, stop=stop, task_status=task_status)

        await self.universe.run_node(f"controller-{node_id}", main)
        if self.running.get(node_id) is stop:
            del self.running[node_id]

    def kill(self, node_id: int) -> None:
        self.running.pop(node_id, None)
        self.universe.kill(f"controller-{node_id}")

    def power_cut(self, node_id: int) -> None:
        self.running.pop(node_id, None)
        self.universe.power_cut(f"controller-{node_id}")

    def files(self, node_id: int) -> list[str]:
        """Paths on a controller's disk."""
        return [path for path, _ in self.universe.disk(f"controller-{node_id}").files()]

    async def add_broker(self, broker_id: int, *more_listeners: Listener) -> Broker:
        """A broker that is unfenced when this returns; it advertises `more_listeners` before its own."""
        broker = self.brokers[broker_id] = Broker(self, broker_id)
        broker.listeners[:0] = more_listeners
        self.nursery.start_soon(self.universe.run_node, f"broker-{broker_id}", broker.live)
        with trio.fail_after(30):
            await broker.serving.wait()
        return broker

    def kill_broker(self, broker_id: int) -> None:
        self.universe.kill(f"broker-{broker_id}")

    async def ask(self, world: World, nursery: trio.Nursery, asker: str, node_id: int, request: Message) -> Any:
        """The answer of one controller. Raises ChannelError."""
        key = (f"{asker}/{id(nursery)}", node_id)
        channel = self._channels.get(key)
        if channel is None:
            channel = Channel(world, nursery, f"controller-{node_id}", PORT, client_id=asker)
            self._channels[key] = channel
        return await channel.call(request, timeout_ms=3000)

    async def ask_active(self, world: World, nursery: trio.Nursery, asker: str, request: Message) -> Any:
        """The answer of whichever controller is active."""
        while True:
            for node_id in self.ids:
                try:
                    response = await self.ask(world, nursery, asker, node_id, request)
                except ChannelError:
                    continue
                if f"error_code={ErrorCode.NOT_CONTROLLER.value}" not in repr(response):
                    return response
            await trio.sleep(0.02)


class Client:
    """Asks from a host of its own, and follows the metadata log there as brokers do."""

    def __init__(self, quorum: Quorum, nursery: trio.Nursery) -> None:
        self.quorum = quorum
        self._world = make_world("client", quorum.universe)
        self._nursery = nursery
        self._loader = MetadataLoader()
        self._news = trio.Event()

    async def follow(self) -> None:
        """Start following; from now on `image` is what the cluster has committed."""
        self._world.disk.make_directories("/data")
        config = ReplicaConfig(
            node_id=900,
            cluster_id=CLUSTER_ID,
            directory_id=random_uuid(self._world.chance),
            log_directory="/data",
            voters={it: NodeAddress(f"controller-{it}", PORT) for it in self.quorum.ids},
        )
        await self._nursery.start(self._run_replica, MetadataReplica(config, self._world, self))

    async def _run_replica(self, replica: MetadataReplica, *, task_status: trio.TaskStatus[None]) -> None:
        await replica.run(task_status=task_status)

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    def handle_commit(self, batch: CommittedBatch) -> Stepwise[None]:
        yield from self._loader.commit_steps(batch.base_offset, batch.epoch, batch.append_time_ms, batch.records)
        self._report_change()

    def handle_snapshot(self, records: list[Message], offset: int, epoch: int, timestamp_ms: int) -> Stepwise[None]:
        yield from self._loader.snapshot_steps(records, offset, epoch, timestamp_ms)
        self._report_change()

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """The tests ask the controllers themselves."""

    def _report_change(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def until(self, holds: Callable[[MetadataImage], bool], limit_seconds: float = 60) -> float:
        """Seconds until the committed image is such."""
        began = trio.current_time()
        with trio.fail_after(limit_seconds):
            while not holds(self.image):
                await self._news.wait()
        return trio.current_time() - began

    async def active(self, request: Message) -> Any:
        return await self.quorum.ask_active(self._world, self._nursery, "client", request)

    async def ask(self, node_id: int, request: Message) -> Any:
        return await self.quorum.ask(self._world, self._nursery, "client", node_id, request)

    async def leader(self) -> int:
        """The active controller, as all that run agree."""
        ask = DescribeClusterRequest(endpoint_type=2)
        while True:
            named: set[int] = set()
            for node_id in list(self.quorum.running):
                try:
                    named.add((await self.ask(node_id, ask)).controller_id)
                except ChannelError:
                    named.add(-1)
            if len(named) == 1 and named != {-1}:
                return named.pop()
            await trio.sleep(0.02)

    async def enveloped(
        self, node_id: int, request: Message, correlation_id: int = 77, principal: Principal = ANONYMOUS
    ) -> Any:
        """(error of the envelope, answer inside or None)"""
        key = ApiKey(request.API_KEY)
        spec = API_SPECS[key]
        version = spec.max_version
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id="inner"
        )
        data = encode(header, spec.request_header_version(version)) + encode(request, version)
        answer = await self.ask(
            node_id,
            EnvelopeRequest(
                request_data=data, request_principal=written_principal(principal), client_host_address=LOOPBACK
            ),
        )
        if answer.response_data is None:
            return answer.error_code, None
        body = memoryview(bytearray(answer.response_data))
        answered, position = decode_prefix(ResponseHeader, body, 0, spec.response_header_version(version))
        assert answered.correlation_id == correlation_id
        return answer.error_code, decode(spec.response_type(), body[position:], version)


Story = Callable[[Quorum, Client], Awaitable[None]]


def play(seed: int, ids: tuple[int, ...], story: Story, **overrides: str) -> None:
    """Run a story among controllers that are started already, with these settings."""

    async def run(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            quorum = Quorum(universe, nursery, ids)
            async with trio.open_nursery() as starting:
                for node_id in ids:
                    starting.start_soon(partial(quorum.start, node_id, **overrides))
            client = Client(quorum, nursery)
            await client.follow()
            with trio.fail_after(300):
                await story(quorum, client)
            nursery.cancel_scope.cancel()

    run_simulation(seed, run)


@pytest.fixture
def simulate() -> Callable[..., None]:
    return play
