"""Topics that come and go while other clients work: one administrator makes them, writes to them, changes their
settings and partitions, lets their beginnings be deleted, by DeleteRecords and by retention, and deletes them again.

Nobody counts their records. What the invariants ask of every log on every node holds for these as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from barnabas.client.admin import Admin, ConfigResource, NewTopic, OffsetSpec, ResourceType
from barnabas.client.cluster import TopicPartition
from barnabas.client.producer import Producer
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.simulated.chance import Stream
from simulation.at_rest import CONVERGENCE_SECONDS, administrator, producer_options
from simulation.cluster import SimCluster

HOST = "administrator"
MOST_TOPICS = 3
"""At a time."""
MOST_PARTITIONS = 4
SETTINGS: tuple[dict[str, str | None], ...] = (
    {"segment.ms": "300"},
    {"segment.ms": "5000"},
    {"index.interval.bytes": "0"},
    {"index.interval.bytes": "4096"},
    {"flush.messages": "1"},
    {"flush.messages": None},
    {"message.timestamp.type": "LogAppendTime"},
    {"retention.bytes": "1500"},
    {"retention.bytes": None},
    {"retention.ms": "1000"},
    {"retention.ms": None},
)
RETENTION_CHECK_MS = 1_000


@dataclass(slots=True)
class PassingTopics:
    """The administrator of one run."""

    cluster: SimCluster
    pause_seconds: float
    """Mean time between two acts."""
    _topics: dict[str, int] = field(default_factory=dict)
    """Those that may be there, with how many partitions they have."""
    _made: int = 0

    async def run(self) -> None:
        """Administers until it is cancelled."""
        chance = self.cluster.universe.stream("passing topics")
        options = producer_options(self.cluster, delivery_timeout_ms=6_000)
        async with (
            administrator(self.cluster, HOST) as admin,
            Producer(world=self.cluster.world(HOST), **options) as producer,
        ):
            acts: tuple[Callable[[Admin, Producer, Stream], Awaitable[None]], ...] = (
                self._make, self._write, self._write, self._write, self._change, self._change, self._grow,
                self._delete_records, self._delete,
            )  # fmt: skip
            while True:
                await trio.sleep(chance.expovariate(1.0 / self.pause_seconds))
                act = chance.choice(acts) if self._topics else self._make
                await self._try(act.__name__.strip("_"), act(admin, producer, chance))

    async def end(self) -> None:
        """Deletes all that is left, in a healed cluster."""
        chance = self.cluster.universe.stream("last of the passing topics")
        with trio.move_on_after(CONVERGENCE_SECONDS):
            async with administrator(self.cluster, HOST) as admin:
                while self._topics:
                    await self._try("delete", self._delete(admin, None, chance))
        if self._topics:
            self.cluster.findings.report(f"{', '.join(self._topics)}: passing topics cannot be deleted")

    async def _try(self, name: str, act: Awaitable[None]) -> None:
        """While things break, any of it may be refused."""
        try:
            with trio.move_on_after(10):
                await act
                self.cluster.findings.count(f"passing topics: {name.replace('_', ' ')}")
        except KafkaError as error:
            self.cluster.findings.count(f"administrator: {error.code.name}")
            await trio.sleep(0.1)

    async def _make(self, admin: Admin, producer: Producer, chance: Stream) -> None:
        if len(self._topics) >= MOST_TOPICS:
            return
        self._made += 1
        name, partitions = f"passing-{self._made}", chance.randint(1, 2)
        self._topics[name] = partitions
        replicas = min(3, len(list(self.cluster.brokers)))
        configs = {"internal.segment.bytes": "1500", "segment.ms": "1000"}
        await admin.create_topics(NewTopic(name, partitions, replicas, configs=configs))

    async def _write(self, admin: Admin, producer: Producer, chance: Stream) -> None:
        name = chance.choice(list(self._topics))
        partition = chance.randrange(self._topics[name])
        async with trio.open_nursery() as nursery:
            for _ in range(chance.randint(1, 8)):
                value = b"." * chance.randrange(200)
                try:
                    future = await producer.enqueue(name, value, partition=partition)
                except KafkaError as error:
                    # Brokers have not replayed yet that the topic has grown.
                    self.cluster.findings.count(f"administrator: {error.code.name}")
                    break
                nursery.start_soon(future.outcome)

    async def _change(self, admin: Admin, producer: Producer, chance: Stream) -> None:
        resource = ConfigResource(ResourceType.TOPIC, chance.choice(list(self._topics)))
        await admin.incremental_alter_configs({resource: chance.choice(SETTINGS)})

    async def _grow(self, admin: Admin, producer: Producer, chance: Stream) -> None:
        name = chance.choice(list(self._topics))
        if self._topics[name] < MOST_PARTITIONS:
            await admin.create_partitions({name: self._topics[name] + 1})
            self._topics[name] += 1

    async def _delete_records(self, admin: Admin, producer: Producer, chance: Stream) -> None:
        name = chance.choice(list(self._topics))
        partition = TopicPartition(name, chance.randrange(self._topics[name]))
        before = -1
        if chance.random() < 0.5:
            (end,) = (await admin.list_offsets({partition: OffsetSpec.latest()})).values()
            before = chance.randint(0, max(0, end.offset))
        await admin.delete_records({partition: before})

    async def _delete(self, admin: Admin, producer: Producer | None, chance: Stream) -> None:
        name = chance.choice(list(self._topics))
        gone = (await admin.delete_topics(name, raise_errors=False)).errors
        if not gone or all(error.code.name == "UNKNOWN_TOPIC_OR_PARTITION" for error in gone.values()):
            self._topics.pop(name, None)
