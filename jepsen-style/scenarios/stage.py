"""The stage of a scenario: a simulated cluster whose nodes, logs, wires and letters are in reach.

A scenario checks two kinds of facts: `came_about`, that the situation exists which it is about, and
`holds`, what must be so in it. Only the second is a fault of the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import trio

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.broker.parts import BrokerParts
from barnabas.broker.replication.partition import Partition
from barnabas.client.consumer.settings import ConsumerOptions
from barnabas.client.producer.settings import ProducerOptions
from barnabas.cluster.simulated import SimulatedCluster, SimulatedNode
from barnabas.kraft.metadata.image import PartitionImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import BatchOptions, build_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from barnabas.runtime.simulated import Universe, make_world
from barnabas.runtime.simulated.links import Link
from barnabas.runtime.world import World
from barnabas.storage.log import PartitionLog
from barnabas.storage.names import METADATA_TOPIC
from barnabas.testing.simulated import TEST_HOST, SimulatedClusterForTests
from scenarios.intercepted_messages import Mail
from simulation.watch import NodeLog

CALL_MS = 10_000
UNTIL_SECONDS = 60.0
LOOK_SECONDS = 0.02
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "2000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
}
"""Settings of every scenario: three replicas, two of which must have a record; silence is noticed within seconds."""


class Violation(AssertionError):
    """A promise did not hold."""


class NotBroughtAbout(RuntimeError):
    """The situation that a scenario is about did not come about: nothing was shown."""


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, and of the groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error


def holds(fact: object, problem: str) -> None:
    """Raises Violation with `problem` unless the fact is true."""
    if not fact:
        raise Violation(problem)


def came_about(fact: object, missing: str) -> None:
    """Raises NotBroughtAbout unless the fact is true, without which the scenario means nothing."""
    if not fact:
        raise NotBroughtAbout(missing)


class Stage(SimulatedClusterForTests):
    """The words of `SimulatedClusterForTests`, and more; hosts of clients are made when they are named."""

    mail: Mail

    def __init__(
        self,
        seed: int,
        settings: Mapping[str, str] | None = None,
        *,
        features: Mapping[str, int] | None = None,
        longest_seconds: float = 600.0,
    ) -> None:
        super().__init__(seed, {**SETTINGS, **(settings or {})}, longest_seconds)
        self._features = features
        self._worlds: dict[str, World] = {}
        self._channels: dict[tuple[str, str], Channel] = {}
        self.may_fail: dict[str, None] = {}
        """Nodes that may log errors or end by themselves: something of theirs is broken."""

    def _build(self, universe: Universe, nursery: trio.Nursery) -> SimulatedCluster:
        self.mail = Mail(universe)
        cluster = SimulatedCluster(universe, nursery, self._settings, features=self._features)
        cluster.on_failure = self._node_failed
        return cluster

    def play(self, scenario: Callable[[Stage], Awaitable[None]]) -> None:
        """Runs it to its end; Violation, NotBroughtAbout, or what else it raises. Nodes must not log errors."""
        root = logging.getLogger()
        before, handlers = root.level, root.handlers[:]

        async def main() -> None:
            self.log = NodeLog(self.universe)
            root.handlers[:] = [self.log]
            root.setLevel(logging.WARNING)
            await scenario(self)
            for node, message, error in self.log.errors:
                holds(node in self.may_fail, f"logged as an error: {message} {error!r}")

        try:
            self.run(main)
        finally:
            root.handlers[:] = handlers
            root.setLevel(before)

    def _node_failed(self, name: str, error: BaseException) -> None:
        if name not in self.may_fail:
            raise Violation(f"{name} ended by itself: {error!r}") from error

    # ---- inside of nodes

    @property
    def cluster(self) -> SimulatedCluster:
        return self._cluster

    def node(self, name: str) -> SimulatedNode:
        return self._cluster.nodes[name]

    def id_of(self, name: str) -> int:
        return self.node(name).node.id

    def name_of(self, node_id: int) -> str:
        return self._cluster.node_of(node_id).node.name

    def broker(self, name: str) -> BrokerParts:
        services = self.node(name).broker
        if services is None:
            raise NotBroughtAbout(f"{name} is not up")
        return services

    def replica_of(self, name: str, topic: str, index: int = 0) -> Partition:
        found = self.broker(name).partitions.find(topic, index)
        if found is None:
            raise NotBroughtAbout(f"{topic}-{index} is not on {name}")
        return found

    def log_of(self, name: str, topic: str, index: int = 0) -> PartitionLog:
        return self.replica_of(name, topic, index).log

    def image(self, topic: str, index: int = 0) -> PartitionImage:
        """A partition as the newest metadata of any broker has it."""
        images = [node.broker.metadata.image for node in self._cluster.brokers if node.broker is not None]
        found = max(images, key=lambda image: image.offset).topics.partition(topic, index) if images else None
        if found is None:
            raise NotBroughtAbout(f"nobody knows {topic}-{index}")
        return found

    async def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> str:
        """Creates a topic and waits for its logs: brokers report a topic before they have made them."""
        await super().create_topic(name, partitions, replicas, configs)
        await self.until(partial(self._has_logs, name, partitions), f"{name} has its logs")
        return name

    def _has_logs(self, topic: str, partitions: int) -> bool:
        indexes = range(partitions)
        replicas = [(self.name_of(each), index) for index in indexes for each in self.image(topic, index).replicas]
        up = [(name, index) for name, index in replicas if self.node(name).is_up]
        return all(self.broker(name).partitions.find(topic, index) is not None for name, index in up)

    def leader(self, topic: str, index: int = 0) -> str:
        """The leader in the newest metadata; empty if there is none."""
        return self._leader(topic, index)

    def followers(self, topic: str, index: int = 0) -> list[str]:
        """Every replica but the leader, by name."""
        image = self.image(topic, index)
        return [self.name_of(replica) for replica in image.replicas if replica != image.leader]

    def isr(self, topic: str, index: int = 0) -> list[str]:
        return [self.name_of(replica) for replica in sorted(self.image(topic, index).isr)]

    def in_sync(self, name: str, topic: str, index: int = 0) -> bool:
        return name in self.isr(topic, index)

    def records(self, name: str, topic: str, index: int = 0) -> list[tuple[int, bytes]]:
        """(offset, value) of all that a replica has, control records left out."""
        found: list[tuple[int, bytes]] = []
        log = self.log_of(name, topic, index)
        for batch in log.batches(log.log_start_offset):
            if not read_header(batch, 0).is_control:
                found += [(record.offset, record.value or b"") for record in decode_records(batch)]
        return found

    def values(self, name: str, topic: str, index: int = 0) -> list[bytes]:
        return [value for _, value in self.records(name, topic, index)]

    def has_more_than(self, count: int, name: str, topic: str, index: int = 0) -> bool:
        return len(self.values(name, topic, index)) > count

    async def until(self, condition: Callable[[], object], what: str, seconds: float = UNTIL_SECONDS) -> float:
        """Waits for something that must come about; gives the seconds it took. NotBroughtAbout."""
        began = trio.current_time()
        while not self._now(condition):
            if trio.current_time() - began > seconds:
                raise NotBroughtAbout(f"not within {seconds:.0f} s: {what}")
            await trio.sleep(LOOK_SECONDS)
        return trio.current_time() - began

    async def must(self, condition: Callable[[], object], what: str, seconds: float = UNTIL_SECONDS) -> float:
        """Like `until`, for a promise: raises Violation."""
        try:
            return await self.until(condition, what, seconds)
        except NotBroughtAbout as error:
            raise Violation(str(error)) from None

    def _now(self, condition: Callable[[], object]) -> object:
        # While nodes come and go there may be nothing to look at.
        with suppress(NotBroughtAbout):
            return condition()
        return False

    async def whole(self, *topics: str, seconds: float = UNTIL_SECONDS) -> None:
        """Everything runs, all replicas of these topics' first partitions are in sync and equal: Violation if not."""
        await self.must(lambda: not self._cluster.not_ready(), "all nodes are up", seconds)
        for topic in topics:
            for index in range(len(self.broker(self.brokers[0]).metadata.image.topics.by_name[topic].partitions)):
                await self.must(partial(self._equal, topic, index), f"{topic}-{index} is whole", seconds)

    def _equal(self, topic: str, index: int) -> bool:
        image = self.image(topic, index)
        logs = [self.log_of(self.name_of(replica), topic, index) for replica in image.replicas]
        ends = {(log.log_end_offset, log.high_watermark) for log in logs}
        return set(image.isr) == set(image.replicas) and len(ends) == 1 and len(set(ends.pop())) == 1

    def lose_unsynced(self, name: str, directory: str) -> None:
        """All that is not synced of a partition's log will be gone at the power cut that must follow at once."""
        for _, inode in self.universe.disk(name).files(f"/{name}/data/{directory}"):
            inode.cached[:] = inode.durable
            inode.dirty.clear()

    # ---- wires; the test's own questions pass always

    def _others(self, name: str, *but: str) -> list[str]:
        return [host for host in self.universe.hosts if host not in (name, TEST_HOST, *but)]

    def isolate(self, name: str, *, but: Iterable[str] = ()) -> None:
        """Cuts a host off from all others except some, both ways; neither end notices."""
        self.universe.wires.cut_between([name], self._others(name, *but))

    def mend(self) -> None:
        """All wires are whole."""
        self.universe.wires.heal()
        self._paused.clear()

    def _links(self, name: str) -> list[Link]:
        wires = self.universe.wires
        others = self._others(name)
        return [wires.link(name, other) for other in others] + [wires.link(other, name) for other in others]

    def pause(self, name: str) -> None:
        self._paused[name] = None
        for link in self._links(name):
            link.set(stalled=True)

    def resume(self, name: str) -> None:
        self._paused.pop(name, None)
        for link in self._links(name):
            link.set(stalled=False)

    # ---- clients

    def world_of(self, host: str) -> World:
        if host not in self._worlds:
            self._worlds[host] = make_world(host, self.universe)
        return self._worlds[host]

    def producer(self, host: str = "producer", **options: Any) -> Producer:
        """Ours, impatient where it does not matter."""
        chosen: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "linger_ms": 0,
            "request_timeout_ms": 3_000,
            "retry_backoff_ms": 50,
            "socket_connection_setup_timeout_ms": 1_000,
            **options,
        }
        return Producer(world=self.world_of(host), **cast(ProducerOptions, chosen))

    def consumer(self, *topics: str, host: str = "consumer", **options: Any) -> Consumer:
        chosen: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "request_timeout_ms": 5_000,
            "retry_backoff_ms": 50,
            "socket_connection_setup_timeout_ms": 1_000,
            **options,
        }
        return Consumer(*topics, world=self.world_of(host), **cast(ConsumerOptions, chosen))

    def admin(self, host: str = "admin") -> Admin:
        return Admin(bootstrap_servers=self.bootstrap_servers, world=self.world_of(host))

    async def read(self, topic: str, index: int = 0, *, host: str = "reader", committed: bool = True) -> list[bytes]:
        """All there is, as a new consumer sees it; Violation if that does not come to an end."""
        place = TopicPartition(topic, index)
        isolation = "read_committed" if committed else "read_uncommitted"
        read: list[bytes] = []
        async with self.consumer(host=host, isolation_level=isolation) as consumer:
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            began = trio.current_time()
            while await consumer.position(place) < end:
                read += [record.value for record in await consumer.poll(500)]
                holds(trio.current_time() - began < UNTIL_SECONDS, f"reading {place} does not come to {end}")
        return read

    # ---- raw requests

    async def ask(
        self,
        node: str,
        request: Message,
        *,
        host: str = "zombie",
        version: int | None = None,
        at_most: int | None = None,
        timeout_ms: float = CALL_MS,
    ) -> Any:
        """The answer of a node to what nobody checked. Raises ChannelError."""
        channel = self._channels.get((host, node))
        if channel is None:
            port = self.node(node).node.port
            channel = Channel(self.world_of(host), self._nursery, node, port, client_id=host)
            self._channels[host, node] = channel
        return await channel.call(request, timeout_ms=timeout_ms, version=version, at_most=at_most)

    async def produce(self, node: str, request: ProduceRequest, **how: Any) -> PartitionProduceResponse:
        """The answer for its only partition."""
        answer = await self.ask(node, request, **({"at_most": 12} | how))
        result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return result

    async def fetch(self, node: str, request: FetchRequest, **how: Any) -> PartitionData:
        answer = await self.ask(node, request, **({"at_most": 12} | how))
        holds(answer.error_code == ErrorCode.NONE, f"fetch is refused: {ErrorCode(answer.error_code).name}")
        result: PartitionData = answer.responses[0].partitions[0]
        return result

    async def quorum_leader(self, *, other_than: str = "", among: Sequence[str] = ()) -> str:
        """The active controller by the word of the newest epoch that any of the running controllers knows."""
        with trio.fail_after(UNTIL_SECONDS):
            while True:
                best = (-1, "")
                for name in among or self.controllers:
                    if self.node(name).is_up and name not in self._paused:
                        best = max(best, await self.leader_by(name))
                if best[1] not in ("", other_than):
                    return best[1]
                await trio.sleep(0.05)

    async def leader_by(self, name: str) -> tuple[int, str]:
        """(epoch, name) of the leader if this controller claims to be the leader; else (-1, \"\")."""
        asked = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])
        port = self.node(name).node.port
        async with trio.open_nursery() as nursery:
            channel = Channel(self._test_world, nursery, name, port, client_id=TEST_HOST)
            found = (-1, "")
            with suppress(ChannelError):
                answer = await channel.call(DescribeQuorumRequest(topics=[asked]), timeout_ms=1_000)
                for topic in answer.topics:
                    for partition in topic.partitions:
                        if partition.error_code == ErrorCode.NONE and partition.leader_id == self.id_of(name):
                            found = (partition.leader_epoch, name)
            nursery.cancel_scope.cancel()
        return found


def batch_of(*values: bytes, **options: Any) -> bytes:
    """A batch with these values, and a timestamp of long ago."""
    records = [Record(0, 1_750_000_000_000, None, value) for value in values]
    return build_batch(records, **cast(BatchOptions, options))


def produce_request(
    topic: str,
    batch: bytes,
    *,
    index: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    timeout_ms: int = 5_000,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])],
    )


def fetch_request(topic: str, offset: int, *, index: int = 0, committed: bool = False, **options: Any) -> FetchRequest:
    """A fetch request of a consumer; `options` are fields of the partition or of the request."""
    partition_fields = ("current_leader_epoch", "last_fetched_epoch", "log_start_offset")
    of_partition = {name: options.pop(name) for name in partition_fields if name in options}
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, **of_partition)
    return FetchRequest(
        max_wait_ms=options.pop("max_wait_ms", 500),
        min_bytes=1,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        **options,
    )


def values_in(data: PartitionData) -> list[bytes]:
    """The values of the records of a fetch, with control records and aborted ones."""
    found: list[bytes] = []
    records = bytes(data.records or b"")
    position = 0
    while position + 12 <= len(records):
        header = read_header(records, position)
        batch = records[position : position + header.size_bytes]
        if not header.is_control:
            found += [record.value or b"" for record in decode_records(batch)]
        position += header.size_bytes
    return found
