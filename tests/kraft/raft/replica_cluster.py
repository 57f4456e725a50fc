"""Whole metadata replicas in a simulated universe: each on its own host, with a listener, a disk and a
server."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import trio

from barnabas.kraft.commit_feed import CommittedBatch
from barnabas.kraft.metadata_replica import MetadataReplica, NotLeader
from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.replica_config import ReplicaConfig
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.metadata_log import ConfigRecord
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.dispatch import Call, Dispatcher
from barnabas.runtime.server import Server, ServerLimits
from barnabas.runtime.simulated import Universe
from barnabas.runtime.world import World

PORT = 9093
CLUSTER_ID = "c3VjaC1hLWNsdXN0ZXI"


@dataclass
class RecordingListener:
    """Applies records to a dictionary, as a state machine would."""

    values: dict[str, str | None] = field(default_factory=dict)
    next_offset: int = 0
    events: list[str] = field(default_factory=list)

    def handle_commit(self, batch: CommittedBatch) -> Stepwise[None]:
        assert batch.base_offset == self.next_offset, f"{batch.base_offset} after {self.next_offset}"
        self.next_offset = batch.last_offset + 1
        for record in batch.records:
            assert isinstance(record, ConfigRecord)
            self.values[record.name] = record.value
        yield from ()

    def handle_snapshot(self, records: list[Message], offset: int, epoch: int, timestamp_ms: int) -> Stepwise[None]:
        assert offset >= self.next_offset, "a snapshot went back"
        yield
        self.values.clear()
        for record in records:
            assert isinstance(record, ConfigRecord)
            self.values[record.name] = record.value
        self.next_offset = offset + 1
        self.events.append(f"snapshot {offset}@{epoch}")

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        self.events.append(f"leader {leader_id}@{epoch}")


def setting(name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name="topic", name=name, value=value)


def directory_id(node_id: int) -> bytes:
    return base64.b64decode("AAAAAAAAAAAAAAAAAAAAAA==")[:15] + bytes([node_id])


async def committed(leader: MetadataReplica, offset: int) -> None:
    """Wait until the record at `offset` is committed. Raises NotLeader: it may be committed later, or never."""
    outcome: list[KafkaError | None] = []
    settled = trio.Event()

    def settle(error: KafkaError | None) -> None:
        outcome.append(error)
        settled.set()

    leader.on_committed(offset, settle)
    await settled.wait()
    if outcome[0] is not None:
        raise outcome[0]


class ReplicaCluster:
    """Voters 1..n on hosts `node-1`…; observers after them."""

    def __init__(
        self,
        universe: Universe,
        nursery: trio.Nursery,
        voters: int,
        config: Callable[[ReplicaConfig], ReplicaConfig],
    ) -> None:
        self.universe = universe
        self._nursery = nursery
        self._config = config
        self.voters = {n: NodeAddress(f"node-{n}", PORT) for n in range(1, voters + 1)}
        self.replicas: dict[int, MetadataReplica] = {}
        self.listeners: dict[int, RecordingListener] = {}
        self.errors: dict[int, Exception] = {}
        self.disks_lie = False
        """A sync has failed, so the durable bytes are unknown."""

    def config(self, node_id: int) -> ReplicaConfig:
        return self._config(
            ReplicaConfig(
                node_id=node_id,
                cluster_id=CLUSTER_ID,
                directory_id=directory_id(node_id),
                log_directory="/data",
                voters=self.voters,
            )
        )

    async def start(self, node_id: int, change: Callable[[ReplicaConfig], ReplicaConfig] = lambda c: c) -> None:
        config = change(self.config(node_id))
        await self._nursery.start(self._live, node_id, config)

    async def _live(
        self,
        node_id: int,
        config: ReplicaConfig,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async def main(world: World) -> None:
            try:
                await self._serve(world, config, task_status)
            except* OSError as group:
                self.errors[node_id] = group
            except* Exception as group:
                self.errors[node_id] = group

        await self.universe.run_node(f"node-{node_id}", main)

    async def _serve(self, world: World, config: ReplicaConfig, task_status: trio.TaskStatus[None]) -> None:
        world.disk.make_directories(config.log_directory)
        world.disk.sync_directory("/")
        listener = RecordingListener()
        replica = MetadataReplica(config, world, listener)
        dispatcher: Dispatcher

        def answer_versions(call: Call) -> None:
            call.answer(ApiVersionsResponse(api_keys=dispatcher.advertised()))

        dispatcher = Dispatcher(replica.handlers() | {ApiKey.API_VERSIONS: answer_versions})
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(replica.run))
            self.replicas[config.node_id] = replica
            self.listeners[config.node_id] = listener
            socket = await world.network.listen(f"node-{config.node_id}", PORT)
            nursery.start_soon(Server(world, dispatcher, ServerLimits()).serve, socket, "CONTROLLER")
            task_status.started()

    def kill(self, node_id: int) -> None:
        self.universe.kill(f"node-{node_id}")
        self._forget(node_id)

    def power_cut(self, node_id: int) -> None:
        self.universe.power_cut(f"node-{node_id}")
        self._forget(node_id)

    def _forget(self, node_id: int) -> None:
        self.replicas.pop(node_id, None)

    @property
    def leader(self) -> MetadataReplica | None:
        leading = [replica for replica in self.replicas.values() if replica.is_leader]
        return max(leading, key=lambda replica: replica.core.epoch, default=None)

    async def wait_for(self, condition: Callable[[], bool], limit_seconds: float = 30.0) -> float:
        """Seconds until the condition held."""
        began = trio.current_time()
        with trio.fail_after(limit_seconds):
            while not condition():
                self.check_synced()
                await trio.sleep(0.001)
        return trio.current_time() - began

    async def wait_for_leader(self, *, other_than: int | None = None) -> MetadataReplica:
        def found() -> bool:
            leader = self.leader
            return (
                leader is not None
                and leader.core.local_id != other_than
                and f"leader {leader.core.local_id}@{leader.core.epoch}" in self.listeners[leader.core.local_id].events
            )

        await self.wait_for(found)
        leader = self.leader
        assert leader is not None
        return leader

    async def write(self, name: str, value: str) -> float:
        """Append one setting however often it takes; seconds until it was committed and applied at its
        leader."""
        began = trio.current_time()
        while True:
            leader = await self.wait_for_leader()
            try:
                await committed(leader, leader.append(leader.core.epoch, [setting(name, value)]))
            except NotLeader:
                continue  # it may have been committed: the same setting once more does no harm
            return trio.current_time() - began

    def check_synced(self) -> None:
        """Records that a voter counts as synced are on its disk: a power cut right now would not lose them."""
        if self.disks_lie:
            return
        for node_id in self.voters.keys() & self.replicas.keys():
            replica, store = self.replicas[node_id], self.universe.host(f"node-{node_id}").store
            synced = replica.core.synced_end_offset
            for segment in replica.log.partition_log.segments:
                if segment.base_offset >= synced:
                    break
                inode = store.file(segment.log_path)
                end = segment.position_of(synced)
                kept = len(inode.durable) if inode.cut_to is None else min(len(inode.durable), inode.cut_to)
                assert inode.durable[:kept][:end] == inode.cached[:end], f"node {node_id} counts {synced} as synced"

    async def wait_until_all_have(self, name: str, value: str) -> float:
        return await self.wait_for(lambda: all(self.listeners[n].values.get(name) == value for n in self.replicas))


def small_snapshots(config: ReplicaConfig) -> ReplicaConfig:
    return replace(config, snapshot_after_bytes=2000, segment_bytes=1 << 20, fetch_snapshot_max_bytes=700)
