"""A cluster in the test's own process, under virtual time: deterministic, and ready at once.

Three brokers and three controllers run the production code over simulated networks, disks and clocks. Time passes only
when every task waits, and then at once: a test of ten minutes takes as long as the work in it. Each seed is one order
of events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.simulated.store import DEFAULT_CAPACITY_BYTES
from barnabas.runtime.world import World
from barnabas.testing.cluster import NO_RETENTION, QUICK_GROUPS

CLIENT = "client"
"""Host of `SimulatedClusterForTests.world`."""
TEST_HOST = "test"
"""Host for requests of this class itself; no faults between it and the nodes."""
READY_SECONDS = 60.0
LONGEST_SECONDS = 600.0
"""In virtual time: six idle nodes need a second of the processor for every minute or so."""
CALL_MS = 30_000
_METADATA_TOPIC = "__cluster_metadata"


class SimulatedClusterForTests:
    """Brokers `broker-1` to `broker-3`, controllers `controller-101` to `controller-103`, each on a host of that name.

    The methods are those of `BarnabasCluster`; those that take time are coroutines. Use it inside `run` only.
    """

    world: World
    """World for clients of the test: `Producer(..., world=cluster.world)`."""
    universe: Universe
    """Hosts, disks and links of the simulation, with more kinds of faults."""

    def __init__(
        self, seed: int = 1, settings: Mapping[str, str] | None = None, longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        """`settings` are for all nodes, under Kafka's names; the defaults let groups rebalance quickly and keep
        records. A test that takes longer than `longest_seconds` of virtual time fails.
        """
        self.seed = seed
        self._longest_seconds = longest_seconds
        self._settings = {**QUICK_GROUPS, **NO_RETENTION, **(settings or {})}
        self._side_of: dict[str, int] = {}
        """Group of each host that is in one."""
        self._paused: dict[str, None] = {}
        self._clock_offsets_ms: dict[str, int] = {}

    def run(self, test: Callable[[], Awaitable[object]]) -> None:
        """Run a test once the cluster accepts writes; raises its exceptions.

        TooSlowError after `longest_seconds`, SimulationStuck if every task waits for ever.
        """
        run_simulation(self.seed, self._story, test)

    async def _story(self, universe: Universe, test: Callable[[], Awaitable[object]]) -> None:
        self.universe = universe
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._cluster = self._build(universe, nursery)
            self._test_world = make_world(TEST_HOST, universe)
            self.world = make_world(CLIENT, universe)
            self._cluster.up()
            await self.wait_ready()
            try:
                with trio.fail_after(self._longest_seconds):
                    await test()
            except trio.Cancelled:
                # A node has failed by itself; that error is the one to raise.
                raise
            except BaseException as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def _build(self, universe: Universe, nursery: trio.Nursery) -> SimulatedCluster:
        return SimulatedCluster(universe, nursery, self._settings)

    # ---- nodes

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers for clients."""
        return ",".join(f"{host}:{port}" for host, port in self._cluster.bootstrap)

    @property
    def brokers(self) -> list[str]:
        return [node.node.name for node in self._cluster.brokers]

    @property
    def controllers(self) -> list[str]:
        return [node.node.name for node in self._cluster.controllers]

    def client_world(self, host: str) -> World:
        """A world for clients on another host, whose links can be cut. Once for each host."""
        world = make_world(host, self.universe)
        self._set_wires()
        return world

    # ---- faults

    def kill(self, *names: str) -> None:
        """Kill nodes at once, as SIGKILL does: written data stays."""
        for name in self._known(names):
            self._cluster.kill(name)

    def power_cut(self, *names: str) -> None:
        """Kill nodes and lose what their disks have not synced; their hosts are unreachable until they are started."""
        for name in self._known(names):
            self._cluster.power_cut(name)

    async def stop(self, name: str) -> None:
        """Stop a node gracefully, and wait until it has ended."""
        [name] = self._known([name])
        await self._cluster.stop(name)

    def start(self, *names: str) -> None:
        """Start nodes on their data. `wait_ready` waits until they serve."""
        for name in self._known(names):
            self._cluster.start(name)

    def pause(self, name: str) -> None:
        """Freeze a node, as seen from outside: it does not respond, and loses nothing."""
        [name] = self._known([name])
        self._paused[name] = None
        self._set_wires()

    def resume(self, name: str) -> None:
        """Continue a paused node."""
        self._paused.pop(name, None)
        self._set_wires()

    def partition(self, *groups: Iterable[str]) -> None:
        """Drop traffic between hosts of different groups without closing connections. Hosts in no group are one more
        group, including those of clients, unlike on a real cluster. Replaces an earlier partition.
        """
        self._side_of = {name: number for number, group in enumerate(groups) for name in group}
        self._set_wires()

    def heal(self) -> None:
        """Undo `partition`."""
        self._side_of = {}
        self._set_wires()

    def set_clock(self, name: str, offset_ms: int) -> None:
        """Set the wall clock of a node wrong by this much; 0 sets it right."""
        [name] = self._known([name])
        self.universe.host(name).wall_clock.jump(offset_ms - self._clock_offsets_ms.get(name, 0))
        self._clock_offsets_ms[name] = offset_ms

    def fill_disk(self, name: str, full: bool = True) -> None:
        """Let the disk of a node be full: what makes a file longer fails with ENOSPC. `full=False` gives it room
        again."""
        [name] = self._known([name])
        store = self.universe.disk(name)
        store.capacity_bytes = store.used_bytes if full else DEFAULT_CAPACITY_BYTES

    def _known(self, names: Iterable[str]) -> list[str]:
        known = list(names)
        for name in known:
            if name not in self._cluster.nodes:
                raise ClusterError(f"the node must be one of {', '.join(self._cluster.nodes)}; got {name}")
        return known

    def _set_wires(self) -> None:
        """Set each link as partition and pauses together demand."""
        hosts = [name for name in self.universe.hosts if name != TEST_HOST]
        for source in hosts:
            for target in hosts:
                if source != target:
                    apart = self._side_of.get(source) != self._side_of.get(target)
                    frozen = source in self._paused or target in self._paused
                    self.universe.wires.link(source, target).set(cut=apart, stalled=frozen)

    # ---- state

    async def wait_ready(self) -> float:
        """Wait until all nodes run and all brokers know each other; returns the virtual seconds it took."""
        return await self._cluster.wait_ready(READY_SECONDS)

    async def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, wait until every running broker knows its leaders, and return its name. ClusterError if
        refused."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        answer = await self._ask(self.brokers, CreateTopicsRequest(topics=[topic], timeout_ms=CALL_MS))
        if answer is None:
            raise ClusterError(f"topic {name}: no broker answers")
        [result] = answer.topics
        if result.error_code != ErrorCode.NONE:
            raise ClusterError(f"topic {name}: {ErrorCode(result.error_code).name}: {result.error_message}")
        await self._cluster.wait_until(lambda: self._not_led(name, result.num_partitions), READY_SECONDS)
        return name

    async def leader_of(self, topic: str, partition: int = 0, other_than: str = "") -> str:
        """Name of the broker that leads a partition; with `other_than`, waits until it is another one."""

        def no_leader() -> str:
            missing = f"{topic}-{partition} has no {'other ' if other_than else ''}leader"
            return missing if self._leader(topic, partition) in ("", other_than) else ""

        await self._cluster.wait_until(no_leader, READY_SECONDS if other_than else 0)
        return self._leader(topic, partition)

    def _leader(self, topic: str, partition: int) -> str:
        """From the newest metadata of any broker; empty without a leader."""
        known = [services.metadata.image for node in self._cluster.brokers if (services := node.broker) is not None]
        newest = max(known, key=lambda image: image.offset, default=None)
        found = None if newest is None else newest.topics.partition(topic, partition)
        return "" if found is None or found.leader < 0 else self._cluster.node_of(found.leader).node.name

    async def active_controller(self, other_than: str = "") -> str:
        """Name of the active controller; waits until there is one, and until it is not `other_than`."""
        asked = RequestTopicData(topic_name=_METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])
        with trio.fail_after(READY_SECONDS):
            while True:
                answer = await self._ask(self.controllers, DescribeQuorumRequest(topics=[asked]))
                for topic in answer.topics if answer is not None else ():
                    for partition in topic.partitions:
                        name = f"controller-{partition.leader_id}"
                        if partition.leader_id >= 0 and name != other_than:
                            return name
                await trio.sleep(0.05)

    def _not_led(self, name: str, partitions: int) -> str:
        for node in self._cluster.brokers:
            services = node.broker
            if services is None:
                continue
            for partition in range(partitions):
                found = services.metadata.partition(name, partition)
                if found is None or found.leader < 0:
                    return f"{node.node.name} knows no leader of {name}-{partition}"
        return ""

    async def _ask(self, names: Iterable[str], request: Message) -> Any:
        """The first response of these nodes without an error; None if there is none."""
        for name in names:
            node = self._cluster.nodes[name]
            if not node.is_up or name in self._paused:
                continue
            answer = None
            async with trio.open_nursery() as nursery:
                channel = Channel(self._test_world, nursery, name, node.node.port, client_id=TEST_HOST)
                with contextlib.suppress(ChannelError):
                    answer = await channel.call(request, timeout_ms=CALL_MS)
                nursery.cancel_scope.cancel()
            if answer is not None and not getattr(answer, "error_code", 0):
                return answer
        return None
