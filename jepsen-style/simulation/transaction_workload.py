"""Transactions in a run: writers over several partitions, a group that writes on what it reads, and auditors.

Every writer notes the outcome of its transactions in the promises. A writer that is fenced, or cannot go on, ends and
comes again under the same transactional id, as a process does that is restarted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer import FROM_EARLIEST, ConsumerRecord, Isolation, ReadingSettings, open_reader
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer import Producer, TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.world import World
from simulation.clients import Mortals, as_client, chance_of_life, producer_options
from simulation.group_workload import FETCH_WAIT_MS, POLL_MS, GroupMember, GroupPart
from simulation.invariants.places import PartitionKey
from simulation.invariants.transactions import (
    Fate,
    Transaction,
    TransactionPromises,
    check_exactly_once,
)
from simulation.swarm import TransactionPlan

COMMITTED_ONLY = ReadingSettings(
    isolation=Isolation.READ_COMMITTED, fetch_max_wait_ms=FETCH_WAIT_MS, reset=FROM_EARLIEST
)

AGAIN_SECONDS = 1.0


@dataclass(slots=True)
class Transactions:
    """The transactional clients of one run."""

    plan: TransactionPlan
    part: GroupPart
    """The group that consumes, transforms and produces."""
    promises: TransactionPromises
    mortals: Mortals
    last_stable_offset: Callable[[PartitionKey], int]
    """The last stable offset of the leader; -1 while there is no leader."""
    _counts: dict[str, int] = field(default_factory=dict)

    @property
    def writers(self) -> tuple[str, ...]:
        return tuple(f"writer-{index}" for index in range(self.plan.writers))

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(f"transform-{index}" for index in range(self.plan.transform.members))

    @property
    def clients(self) -> tuple[str, ...]:
        return (*self.writers, *self.members, "auditor")

    @property
    def keys(self) -> list[PartitionKey]:
        """Partitions that are written in transactions."""
        plan = self.plan
        pairs = [PartitionKey(plan.pairs, index) for index in range(plan.pairs_partitions)]
        return pairs + [PartitionKey(plan.output, index) for index in range(plan.output_partitions)]

    def not_settled(self) -> str:
        """The group is at the end, and no transaction is open: those of writers that died end by their timeout."""
        missing = self.part.not_settled()
        if missing:
            return missing
        for key in self.keys:
            stable, end = self.last_stable_offset(key), self.part.partitions.ghost(key).end_offset
            if stable != end:
                return f"{key}: the last stable offset is {stable}, committed is up to {end}"
        return ""

    async def run(self) -> None:
        await as_client(self.part.cluster, "auditor", self._create_topics)
        async with trio.open_nursery() as nursery:
            for host in self.writers:
                nursery.start_soon(
                    self.mortals.lives, host, "writers", partial(self._live, host, self._write), lambda: None
                )
            for host in self.members:
                gone = partial(self.part.promises.is_gone, host)
                nursery.start_soon(
                    self.mortals.lives, host, "transformers", partial(self._live, host, self._transform), gone
                )
            nursery.start_soon(as_client, self.part.cluster, "auditor", self._audit)

    async def _create_topics(self, world: World, cluster: Cluster) -> None:
        admin, plan = Admin.over(cluster), self.plan
        for name, partitions in ((plan.pairs, plan.pairs_partitions), (plan.output, plan.output_partitions)):
            while not await self._create_topic(admin, NewTopic(name, partitions, 3)):
                await trio.sleep(AGAIN_SECONDS)

    @staticmethod
    async def _create_topic(admin: Admin, topic: NewTopic) -> bool:
        """False if it has to be tried again: things break already, and a broker may be missing."""
        try:
            await admin.create_topics([topic])
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
                return False
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return True

    # ---- one life of a producer

    async def _live(
        self,
        host: str,
        work: Callable[[str, Cluster, Producer], Awaitable[None]],
        world: World,
        cluster: Cluster,
    ) -> None:
        options = producer_options(self.part.cluster)
        options |= {
            "transactional_id": host,
            "transaction_timeout_ms": self.plan.timeout_ms,
            "delivery_timeout_ms": self.plan.max_block_ms,
            "max_block_ms": self.plan.max_block_ms,
        }
        producer = Producer(world=world, **options)
        try:
            async with producer:
                await work(host, cluster, producer)
        except KafkaError as error:
            ended = producer.transaction_state is TransactionState.FATAL_ERROR
            self.part.findings.count(f"{'ended producer' if ended else 'life of a producer'}: {error.code.name}")

    async def _in_transaction(
        self,
        host: str,
        producer: Producer,
        write: Callable[[Transaction], Awaitable[None]],
        *,
        commits: bool = True,
    ) -> bool:
        """True if it committed, False if it was aborted. Raises KafkaError if the producer cannot go on."""
        self._counts[host] = number = self._counts.get(host, -1) + 1
        transaction = self.promises.begins(f"{host}/{number}")
        findings, trace = self.part.findings, self.part.cluster.universe.trace
        try:
            if producer.transaction_state is TransactionState.INITIALIZING:
                await producer.abort_transaction()
            producer.begin_transaction()
            await write(transaction)
            if commits:
                transaction.fate = Fate.COMMITTING
                await self._until_known(producer, producer.commit_transaction, TransactionState.COMMITTING)
                transaction.fate = Fate.COMMITTED
                trace(f"{transaction.name} is committed")
                findings.count("transactions committed")
                return True
        except KafkaError as error:
            if producer.transaction_state is TransactionState.FATAL_ERROR:
                raise
            findings.count(f"transaction: {error.code.name}")
        await self._until_known(producer, producer.abort_transaction, TransactionState.ABORTING)
        transaction.fate = Fate.ABORTED
        trace(f"{transaction.name} is aborted")
        findings.count("transactions aborted")
        return False

    async def _until_known(
        self, producer: Producer, end: Callable[[], Awaitable[None]], ending: TransactionState
    ) -> None:
        while True:
            try:
                await end()
                return
            except KafkaError:
                if producer.transaction_state is TransactionState.INITIALIZING:
                    return  # it has ended; only the next epoch is missing
                if producer.transaction_state is not ending:
                    raise

    # ---- writers over several partitions

    async def _write(self, host: str, cluster: Cluster, producer: Producer) -> None:
        chance = chance_of_life(self.part.cluster, host)
        keys = [key for key in self.keys if key.topic == self.plan.pairs]

        async def write(transaction: Transaction) -> None:
            for place in range(chance.randint(2, 5)):
                key = chance.choice(keys)
                value = f"{transaction.name}/{place}".encode()
                self.promises.writes(transaction, key, value)
                await producer.enqueue(key.topic, value, partition=key.partition)
                if chance.random() < 0.3:
                    await trio.sleep(chance.uniform(0.0, 0.3))

        while not self.mortals.stop.is_set():
            commits = chance.random() >= self.plan.abort_probability
            await self._in_transaction(host, producer, write, commits=commits)
            with trio.move_on_after(chance.expovariate(1.0 / self.plan.pause_seconds)):
                await self.mortals.stop.wait()

    # ---- read, write on, commit: exactly once

    async def _transform(self, host: str, cluster: Cluster, producer: Producer) -> None:
        part, stop, calm = self.part, self.mortals.stop, self.mortals.calm
        chance = chance_of_life(part.cluster, host)
        leaves_at = trio.current_time() + chance.expovariate(1.0 / part.plan.mean_stay_seconds)
        async with Consumer(world=cluster.world, **part.options(host, chance)) as consumer:
            member = GroupMember(part, host, consumer)
            member.subscribe()
            while not stop.is_set() and (calm.is_set() or trio.current_time() < leaves_at):
                try:
                    records = await member.poll()
                except KafkaError as error:
                    if member.is_put_out(error):
                        return
                    await trio.sleep(0.5)
                    continue
                if records:
                    await self._write_on(host, consumer, producer, records, chance)
                await trio.sleep(chance.uniform(0.0, 0.5))

    async def _write_on(
        self,
        host: str,
        consumer: Consumer,
        producer: Producer,
        records: list[ConsumerRecord],
        chance: Stream,
    ) -> None:
        # The group refuses a member that was expelled and does not know it.
        part, stamp = self.part, consumer.group_metadata()
        starts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            starts.setdefault(place, record.offset)
            ends[place] = record.offset + 1

        async def write(transaction: Transaction) -> None:
            for record in records:
                source = PartitionKey(record.topic, record.partition)
                key = PartitionKey(self.plan.output, record.partition % self.plan.output_partitions)
                # The name of the transaction distinguishes two attempts.
                value = f"{source}@{record.offset}#{transaction.name}".encode()
                self.promises.writes(transaction, key, value)
                await producer.enqueue(key.topic, value, partition=key.partition)
            if chance.random() < 0.3:
                await trio.sleep(chance.uniform(0.0, 2.0))
            for place, offset in ends.items():
                part.promises.commits(part.place(place), host, offset)
            await producer.send_offsets_to_transaction(ends, stamp)

        if await self._in_transaction(host, producer, write):
            for place, offset in ends.items():
                part.promises.committed(part.place(place), offset)
            return
        for place, offset in starts.items():
            if place in consumer.assignment():
                consumer.seek(place, offset)

    # ---- auditors

    async def _audit(self, world: World, cluster: Cluster) -> None:
        """Read what is committed as it comes, and hold each record to what its writer has done."""
        async with open_reader(cluster, COMMITTED_ONLY) as consumer:
            consumer.assign({TopicPartition(*key): 0 for key in self.keys})
            while not self.mortals.stop.is_set():
                try:
                    records = await consumer.poll(POLL_MS)
                except KafkaError as error:
                    self.part.findings.count(f"auditor: {error.code.name}")
                    await trio.sleep(0.5)
                    continue
                for record in records:
                    self._saw(record)

    def _saw(self, record: ConsumerRecord) -> None:
        key = PartitionKey(record.topic, record.partition)
        self.part.partitions.consumed(key, record.offset, record.value)
        self.promises.seen(key, record.offset, record.value)
        self.part.findings.count("audited records")

    async def check_all(self) -> None:
        """At the end: read everything that is committed, and hold it to all that was promised."""
        await as_client(self.part.cluster, "auditor", self._check_all)

    async def _check_all(self, world: World, cluster: Cluster) -> None:
        part = self.part
        logs: dict[PartitionKey, list[bytes]] = {key: [] for key in self.keys}
        ends = {TopicPartition(*key): part.partitions.ghost(key).end_offset for key in self.keys}
        async with open_reader(cluster, COMMITTED_ONLY) as consumer:
            consumer.assign(dict.fromkeys(ends, 0))
            with trio.move_on_after(30):
                while any(consumer.position(partition) < end for partition, end in ends.items()):
                    for record in await consumer.poll(POLL_MS):
                        logs[PartitionKey(record.topic, record.partition)].append(record.value or b"")
            for partition, end in ends.items():
                position = consumer.position(partition)
                if position != end:
                    part.findings.report(f"{partition}: reading what is committed stops at {position} of {end}")
        self.promises.check_all_seen(logs)
        committed = {key: part.promises.known_offset(part.place(TopicPartition(*key))) for key in part.keys}
        inputs = {key: [record.offset for record in part.partitions.committed_records(key)] for key in part.keys}
        outputs = [value.decode().partition("#")[0] for key, values in logs.items() for value in values]
        outputs = [name for name in outputs if "@" in name]
        check_exactly_once(part.findings, committed, inputs, outputs)
        part.findings.count("inputs written on", len(outputs))
