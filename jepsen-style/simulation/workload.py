"""The clients of a run: producers of unique values, a reader at the tail, and a reader of everything at the end.

Everything that an acknowledgement or a record claims is held to the ghost at once; what only the end can show
(nothing lost, doubled or out of order) is checked by `check_history`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer import EARLIEST, ReadingSettings, open_reader
from barnabas.client.producer import Acked, Outcome, Producer, Unknown
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.world import World
from simulation.clients import ClientMain, as_client, producer_options
from simulation.findings import Findings
from simulation.invariants.partitions import PartitionPromises
from simulation.invariants.places import PartitionKey
from simulation.swarm import Plan, TopicPlan


@dataclass(slots=True)
class Sent:
    """A record that a producer took on, and what became of it."""

    producer: str
    sequence: int
    """Rises in the order in which this producer sent to this partition."""
    value: bytes
    outcome: Outcome | None = None


@dataclass(slots=True)
class History:
    """All that clients sent, by partition."""

    sent: dict[PartitionKey, list[Sent]] = field(default_factory=dict)
    acked: int = 0
    acks: Counter[PartitionKey] = field(default_factory=Counter)

    def add(self, key: PartitionKey, record: Sent) -> None:
        self.sent.setdefault(key, []).append(record)


def check_history(
    findings: Findings, key: PartitionKey, sent: Iterable[Sent], log: Sequence[tuple[int, bytes | None]]
) -> None:
    """Compares the final log of a partition, as (offset, value), with the outcomes that clients got.

    Every acked record is at its acked offset and nowhere else; a failed one is nowhere; one of unknown
    fate is there at most once; nothing else is there; each producer's records are in the order they were sent.
    """
    places: dict[bytes, list[int]] = {}
    for offset, value in log:
        places.setdefault(value or b"", []).append(offset)
    last: dict[str, tuple[int, bytes]] = {}
    for record in sorted(sent, key=lambda record: (record.producer, record.sequence)):
        found = places.pop(record.value, [])
        outcome = record.outcome
        if len(found) > 1:
            findings.report(f"{key}: {record.value!r} is there twice, at {found}")
        if isinstance(outcome, Acked):
            if not found:
                findings.report(f"{key}: {record.value!r} was acked at {outcome.offset}, and is lost")
            elif outcome.offset not in (-1, found[0]):
                findings.report(f"{key}: {record.value!r} was acked at {outcome.offset}, and is at {found[0]}")
        elif not isinstance(outcome, Unknown) and found:
            findings.report(f"{key}: {record.value!r} is at {found}, and its producer got: {outcome}")
        if found:
            offset, value = last.get(record.producer, (-1, b""))
            if found[0] < offset:
                findings.report(f"{key}: {record.value!r} at {found[0]} was sent after {value!r} at {offset}")
            last[record.producer] = (found[0], record.value)
    for value, offsets in places.items():
        findings.report(f"{key}: nobody sent {value!r}, which is at {offsets}")


def begin_at(producer: Producer, sequence: int) -> None:
    """Let a new producer number its records from there on. No application can; a broker takes any first sequence."""
    accumulator = producer._accumulator
    accumulator._queue_settings = replace(accumulator._queue_settings, first_sequence=sequence)


@dataclass(slots=True)
class Workload:
    """The clients of one run."""

    cluster: SimulatedCluster
    plan: Plan
    findings: Findings
    promises: PartitionPromises
    history: History = field(default_factory=History)
    stop: trio.Event = field(default_factory=trio.Event)
    """Set: producers finish what they sent and end."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The hosts of all clients."""
        return ("admin", "reader", *(f"producer-{index}" for index in range(self.plan.producers)))

    @property
    def keys(self) -> list[PartitionKey]:
        return [PartitionKey(topic.name, index) for topic in self.plan.topics for index in range(topic.partitions)]

    def counts(self) -> dict[PartitionKey, tuple[int, int]]:
        """(acked records, sent records) so far, by partition."""
        history = self.history
        return {key: (history.acks[key], len(history.sent.get(key, ()))) for key in self.keys}

    # ---- topics

    async def create_topics(self) -> None:
        """Creates all topics as the admin client."""
        await self._as_client("admin", self._create_topics)

    async def _create_topics(self, world: World, cluster: Cluster) -> None:
        admin = Admin.over(cluster)
        for topic in self.plan.topics:
            await self._create_topic(admin, topic)

    async def _create_topic(self, admin: Admin, topic: TopicPlan) -> None:
        new = NewTopic(topic.name, topic.partitions, topic.replication_factor, configs=topic.configs)
        try:
            await admin.create_topics(new)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    # ---- producers

    async def produce(self) -> None:
        """Run all producers until `stop`; returns when every record has its outcome."""
        async with trio.open_nursery() as nursery:
            for index in range(self.plan.producers):
                nursery.start_soon(self._as_client, f"producer-{index}", partial(self._produce, index))

    async def _produce(self, index: int, world: World, cluster: Cluster) -> None:
        plan = self.plan
        name = f"producer-{index}"
        chance = self.cluster.universe.stream(f"workload/{name}")
        options = producer_options(self.cluster)
        options |= {"batch_size": 2_000, "delivery_timeout_ms": plan.delivery_timeout_ms}
        sequences: dict[PartitionKey, int] = {}
        async with Producer(world=world, **options) as producer, trio.open_nursery() as nursery:
            begin_at(producer, plan.first_sequence)
            while not self.stop.is_set():
                with trio.move_on_after(chance.expovariate(1.0 / plan.send_pause_seconds)):
                    await self.stop.wait()
                key = chance.choice(self.keys)
                for _ in range(chance.randint(1, plan.burst_records)):
                    sequences[key] = sequence = sequences.get(key, -1) + 1
                    padding = b"." * chance.randrange(plan.record_bytes)
                    value = b"%s/%s/%d/%s" % (name.encode(), str(key).encode(), sequence, padding)
                    await self._send(nursery, producer, key, Sent(name, sequence, value))

    async def _send(self, nursery: trio.Nursery, producer: Producer, key: PartitionKey, record: Sent) -> None:
        self.history.add(key, record)
        try:
            future = await producer.enqueue(key.topic, record.value, partition=key.partition)
        except KafkaError as error:
            # Not taken on at all.
            self.findings.count(f"refused by the producer: {error.code.name}")
            self.history.sent[key].remove(record)
            return

        async def settle() -> None:
            record.outcome = outcome = await future.outcome()
            if isinstance(outcome, Acked):
                self.history.acked += 1
                self.history.acks[key] += 1
                self.cluster.universe.trace(f"acked {key} {outcome.offset}")
                if outcome.offset >= 0:
                    self.promises.acked(key, outcome.offset, record.value)
            else:
                self.findings.count("unknown fates" if isinstance(outcome, Unknown) else "failed sends")

        nursery.start_soon(settle)

    async def prove_alive(self) -> None:
        """One more record into every partition, which must be acked."""
        for problem in await self.not_alive("prover", self.keys):
            self.findings.report(f"all faults are over, yet {problem}")

    async def not_alive(self, prover: str, keys: Sequence[PartitionKey]) -> list[str]:
        """Sends one record into each of these partitions; gives what was not acked. `prover` names who asks, once."""
        records: dict[PartitionKey, Sent] = {}

        async def prove(world: World, cluster: Cluster) -> None:
            options = producer_options(self.cluster)
            options["delivery_timeout_ms"] = 30_000
            async with Producer(world=world, **options) as producer, trio.open_nursery() as nursery:
                for key in keys:
                    records[key] = Sent(prover, 0, b"still alive/%s/%s" % (prover.encode(), str(key).encode()))
                    await self._send(nursery, producer, key, records[key])

        await self._as_client("admin", prove)
        return [
            f"{key}: a record was not acked: {record.outcome}"
            for key, record in records.items()
            if not isinstance(record.outcome, Acked)
        ]

    # ---- readers

    async def follow(self) -> None:
        """Read all partitions as they grow, holding each record to what is committed, until `stop`."""
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._as_client, "reader", self._follow)
                await self.stop.wait()
                scope.cancel()

    async def _follow(self, world: World, cluster: Cluster) -> None:
        chance = self.cluster.universe.stream("workload/reader")
        settings = ReadingSettings(fetch_max_wait_ms=2_000)
        positions = dict.fromkeys(self.keys, 0)
        async with open_reader(cluster, settings) as consumer:
            consumer.assign({TopicPartition(*key): 0 for key in self.keys})
            while True:
                try:
                    records = await consumer.poll(2_000)
                except KafkaError as error:
                    self.findings.count(f"reader: {error.code.name}")
                    for key, offset in positions.items():
                        consumer.seek(TopicPartition(*key), offset)
                    await trio.sleep(0.5)
                    continue
                for record in records:
                    key = PartitionKey(record.topic, record.partition)
                    self.promises.consumed(key, record.offset, record.value)
                    if record.offset != positions[key]:
                        self.findings.report(f"{key}: the reader at {positions[key]} was given {record.offset}")
                    positions[key] = record.offset + 1
                await trio.sleep(chance.uniform(0.0, 1.0))

    async def read_everything(self) -> None:
        """Read every partition from its start to its end with a new client, and hold it to the history."""
        await self._as_client("reader", self._read_everything)

    async def _read_everything(self, world: World, cluster: Cluster) -> None:
        partitions = [TopicPartition(*key) for key in self.keys]
        logs: dict[PartitionKey, list[tuple[int, bytes | None]]] = {key: [] for key in self.keys}
        async with open_reader(cluster) as consumer:
            starts = await consumer.offsets_at(dict.fromkeys(partitions, EARLIEST))
            consumer.assign(starts)
            ends = {TopicPartition(*key): self.promises.ghost(key).end_offset for key in self.keys}
            with trio.move_on_after(30):
                while any(consumer.position(partition) < ends[partition] for partition in partitions):
                    for record in await consumer.poll(1_000):
                        logs[PartitionKey(record.topic, record.partition)].append((record.offset, record.value))
            for partition in partitions:
                position = consumer.position(partition)
                if position != ends[partition]:
                    self.findings.report(
                        f"{partition}: reading stops at {position}, committed is up to {ends[partition]}"
                    )
        for key in self.keys:
            check_history(self.findings, key, self.history.sent.get(key, ()), logs[key])

    # ---- inside

    async def _as_client(self, host: str, main: ClientMain) -> None:
        await as_client(self.cluster, host, main)
