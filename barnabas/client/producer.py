"""The producer: an idempotent one with acks=all. Every record ends as `Acked`, `Failed` or `Unknown`.

One task per partition carries out what its `PartitionQueue` decides; the order of batches and what may be
said of their fate is decided there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import trio

from barnabas.client.accumulator import (
    Acked,
    Batch,
    Outcome,
    PartitionQueue,
    ProducerId,
    ProducerSettings,
)
from barnabas.client.cluster import STALE_METADATA, Backoff, Cluster, NoBrokerAvailable, TopicPartition
from barnabas.client.murmur2 import partition_for_key
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.builder import record_size_bytes
from protocol.records.record import Headers, Record
from runtime.channel import ChannelError, NotSent

CALL_MARGIN_MS = 1_000
"""How much longer than the broker may wait for its followers we wait for the broker."""


class DeliveryFailed(Exception):
    """A record was not acked; `outcome` says whether it can be in the log."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


class Delivery:
    """What becomes of one record."""

    __slots__ = ("_decided", "outcome")

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self._decided: trio.Event | None = None

    async def wait(self) -> Outcome:
        """How it ended."""
        if self.outcome is None:
            if self._decided is None:
                self._decided = trio.Event()
            await self._decided.wait()
        assert self.outcome is not None
        return self.outcome

    async def ack(self) -> Acked:
        """Where it is; DeliveryFailed if it was not acked."""
        outcome = await self.wait()
        if not isinstance(outcome, Acked):
            raise DeliveryFailed(outcome)
        return outcome

    def decide(self, outcome: Outcome) -> None:
        assert self.outcome is None, "a record ends once"
        self.outcome = outcome
        if self._decided is not None:
            self._decided.set()


@dataclass(slots=True)
class _Sender:
    """One partition: its queue, and what wakes its task."""

    partition: TopicPartition
    queue: PartitionQueue
    backoff: Backoff
    news: trio.Event = field(default_factory=trio.Event)
    idle: trio.Event = field(default_factory=trio.Event)

    def wake(self) -> None:
        self.news.set()


class Admission(Protocol):
    """Who lets a partition's records go: the transaction that they belong to."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def produce_at_most(self) -> int | None:
        """The highest version of Produce that means what is wanted."""

    async def admit(self, partition: TopicPartition, queue: PartitionQueue) -> None:
        """Give the queue a producer id, or abandon it; returns too if neither could be done yet."""

    def decided(self, outcome: Outcome) -> None:
        """A record's fate is known."""


@dataclass(slots=True)
class _Sticky:
    """Where keyless records of a topic go until a batch is full (KIP-794)."""

    partition: int = 0
    remaining_bytes: int = 0


@asynccontextmanager
async def open_producer(cluster: Cluster, settings: ProducerSettings | None = None) -> AsyncIterator[Producer]:
    """A producer for the length of the block. At its end everything is delivered, unless the block raised."""
    nursery = await cluster.open_nursery()
    producer = Producer(cluster, nursery, settings or ProducerSettings())
    try:
        yield producer
        await producer.flush()
    finally:
        producer.abandon()
        nursery.cancel_scope.cancel()


class Producer:
    """Sends records. All methods may be used by many tasks at once."""

    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        settings: ProducerSettings,
        admission: Admission | None = None,
    ) -> None:
        """`nursery` runs the sending; whoever cancels it calls `abandon`. See `open_producer`.

        Without `admission` there are no transactions.
        """
        self._admission = admission
        self._calls = 0
        self._no_calls = trio.Event()
        self._cluster = cluster
        self._nursery = nursery
        self._settings = settings
        self._senders: dict[TopicPartition, _Sender] = {}
        self._sticky: dict[str, _Sticky] = {}
        self._buffered_bytes = 0
        self._room = trio.Event()
        self._producer_id: ProducerId | None = None
        """The one that queues begin with. A queue whose sequence broke gets another, for itself."""
        self._obtaining_id = trio.Lock()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Take a record on; waits while the buffer is full or the topic unknown, max.block.ms at most.

        KafkaError if the record is not taken: unknown topic or partition, too large, no room in time. TypeError or
        ValueError if it cannot be written at all.
        """
        if not isinstance(value, bytes | None) or not isinstance(key, bytes | None):
            raise TypeError(f"key and value are bytes or None, not {type(key)} and {type(value)}")
        if timestamp is not None and not 0 <= timestamp < 2**63:
            raise ValueError(f"timestamp {timestamp}")
        size_bytes = record_size_bytes(key, value, headers)
        if size_bytes > self._settings.max_request_size:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a record of {size_bytes} bytes")
        count = await self._cluster.partitions_count(topic, self._settings.max_block_ms)
        if self._is_full(size_bytes):
            await self._make_room(size_bytes)
        if partition is None:
            partition = self._choose_partition(topic, key, size_bytes, count)
        elif not 0 <= partition < count:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {count} partitions")
        if timestamp is None:
            timestamp = self._cluster.world.wall_clock.now_ms()
        delivery = Delivery()
        self._buffered_bytes += size_bytes

        def decide(outcome: Outcome) -> None:
            self._buffered_bytes -= size_bytes
            self._room.set()
            if self._admission is not None:
                self._admission.decided(outcome)
            delivery.decide(outcome)

        sender = self._sender(TopicPartition(topic, partition))
        record = Record(0, timestamp, key, value, headers)
        if sender.queue.append(record, size_bytes, decide, self._cluster.now_ms()):
            sender.wake()
            await trio.lowlevel.cancel_shielded_checkpoint()  # who sends without end must let the senders run
        return delivery

    async def flush(self) -> None:
        """Wait until every record that was taken on has its outcome."""
        for sender in list(self._senders.values()):
            while not sender.queue.idle:
                sender.queue.flushing = True
                sender.idle = trio.Event() if sender.idle.is_set() else sender.idle
                sender.wake()
                await sender.idle.wait()

    def abandon(self) -> None:
        """Decide all that is undecided: nothing more will be sent."""
        for sender in self._senders.values():
            sender.queue.abandon(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the producer was closed"))

    async def answered(self) -> None:
        """Wait until no request is under way."""
        while self._calls:
            self._no_calls = trio.Event()
            await self._no_calls.wait()

    def renumber(self) -> None:
        """Whatever comes now is sent with another producer id or epoch, from sequence 0 on; all is decided."""
        for sender in self._senders.values():
            assert sender.queue.idle, f"{sender.partition} has records under the old epoch"
            sender.queue = self._new_queue(sender.partition)
            sender.wake()

    def readmit(self) -> None:
        """A new transaction begins in the same epoch: partitions need to be admitted to it again."""
        for sender in self._senders.values():
            sender.queue.producer = None

    def _is_full(self, size_bytes: int) -> bool:
        """One record always has room, whatever its size."""
        return 0 < self._buffered_bytes > self._settings.buffer_memory - size_bytes

    async def _make_room(self, size_bytes: int) -> None:
        with trio.move_on_after(self._settings.max_block_ms / 1000):
            while self._is_full(size_bytes):
                if self._room.is_set():
                    self._room = trio.Event()
                await self._room.wait()
            return
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no room in {self._settings.max_block_ms} ms")

    def _choose_partition(self, topic: str, key: bytes | None, size_bytes: int, count: int) -> int:
        if key is not None:
            return partition_for_key(key, count)
        sticky = self._sticky.setdefault(topic, _Sticky())
        if sticky.remaining_bytes <= 0 or sticky.partition >= count:
            sticky.partition = self._cluster.world.chance.randrange(0, count)
            sticky.remaining_bytes = self._settings.batch_size
        sticky.remaining_bytes -= size_bytes
        return sticky.partition

    def _sender(self, partition: TopicPartition) -> _Sender:
        sender = self._senders.get(partition)
        if sender is None:
            sender = _Sender(partition, self._new_queue(partition), self._cluster.backoff())
            self._senders[partition] = sender
            self._nursery.start_soon(self._run, sender)
        return sender

    def _new_queue(self, partition: TopicPartition) -> PartitionQueue:
        transactional = self._admission is not None
        queue = PartitionQueue(partition.partition, self._settings, transactional=transactional)
        queue.producer = self._producer_id
        return queue

    async def _run(self, sender: _Sender) -> None:
        """Do what the queue says, whenever something happened or its next moment has come."""
        while True:
            queue = sender.queue
            sender.news = trio.Event()
            now_ms = self._cluster.now_ms()
            queue.expire(now_ms)
            if queue.idle:
                queue.flushing = False
                sender.idle.set()
            elif queue.producer is None:
                if self._admission is None:
                    await self._obtain_producer_id(sender)
                else:
                    await self._admission.admit(sender.partition, queue)
                continue
            while (batch := queue.next_to_send(now_ms)) is not None:
                # Each call is under way before the next begins: batches leave in order.
                await self._nursery.start(self._send, sender, batch)
            wake_at_ms = queue.wake_at_ms()
            wait_ms = float("inf") if wake_at_ms is None else max(0, wake_at_ms - self._cluster.now_ms())
            with trio.move_on_after(wait_ms / 1000):
                await sender.news.wait()

    async def _send(
        self, sender: _Sender, batch: Batch, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        cluster, queue = self._cluster, sender.queue
        leadership = cluster.leadership(sender.partition)
        admission = self._admission
        at_most = None if admission is None else admission.produce_at_most
        self._calls += 1
        task_status.started()
        try:
            if leadership is None:
                raise NotSent(f"nobody is known to lead {sender.partition}")
            request = self._request(sender.partition, batch)
            timeout_ms = self._settings.request_timeout_ms + CALL_MARGIN_MS
            response = await cluster.call(leadership.node_id, request, timeout_ms, at_most=at_most)
        except ChannelError as error:
            sent = not isinstance(error, NotSent)
            queue.lost(batch, error, cluster.now_ms() + sender.backoff.next_ms(), sent=sent)
            stale = True
        else:
            stale = self._answered(sender, queue, batch, response)
        finally:
            self._calls -= 1
            if not self._calls:
                self._no_calls.set()
        sender.wake()
        if stale:
            await cluster.refresh([sender.partition.topic])

    def _request(self, partition: TopicPartition, batch: Batch) -> ProduceRequest:
        """By name and by id; the version that is spoken has room for one of them."""
        topic_id = self._cluster.topic_id(partition.topic)
        data = PartitionProduceData(index=partition.partition, records=batch.encoded)
        topic = TopicProduceData(name=partition.topic, topic_id=topic_id, partition_data=[data])
        transactional_id = None if self._admission is None else self._admission.transactional_id
        return ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=self._settings.request_timeout_ms, topic_data=[topic]
        )

    def _answered(self, sender: _Sender, queue: PartitionQueue, batch: Batch, response: ProduceResponse) -> bool:
        """Tell the queue; True if the metadata must be refreshed."""
        cluster = self._cluster
        answer = _only_partition(response, sender.partition.partition)
        if answer is None:
            error = ChannelError(f"the answer to a produce says nothing of {sender.partition}")
            queue.lost(batch, error, cluster.now_ms() + sender.backoff.next_ms(), sent=True)
            return True
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            sender.backoff.reset()
            offset = answer.base_offset if code is ErrorCode.NONE else -1
            queue.acked(batch, offset, answer.log_append_time_ms)
            return False
        refused = KafkaError(code, answer.error_message)
        queue.refused(batch, refused, cluster.now_ms(), sender.backoff.next_ms())
        cluster.learn_nodes(response.node_endpoints)
        leader = answer.current_leader
        return code in STALE_METADATA and not cluster.learn_leader(
            sender.partition, leader.leader_id, leader.leader_epoch
        )

    async def _obtain_producer_id(self, sender: _Sender) -> None:
        """Give the queue a producer id: the first one is shared, every later one is its own."""
        async with self._obtaining_id:
            if sender.queue.producer is not None:
                return  # shared by another queue meanwhile
            first = self._producer_id is None
            sender.queue.producer = await self._init_producer_id(sender)
            if first and sender.queue.producer is not None:
                self._producer_id = sender.queue.producer
                for other in self._senders.values():
                    other.queue.producer = other.queue.producer or self._producer_id

    async def _init_producer_id(self, sender: _Sender) -> ProducerId | None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        try:
            response = await self._cluster.call_any(request, self._settings.request_timeout_ms)
        except (NoBrokerAvailable, ChannelError):
            response = None
        if response is not None and response.error_code == ErrorCode.NONE:
            return ProducerId(response.producer_id, response.producer_epoch)
        if response is not None and not error_code(response.error_code).retriable:
            sender.queue.abandon(KafkaError(error_code(response.error_code), "no producer id was given"))
            return None
        await trio.sleep(sender.backoff.next_ms() / 1000)
        return None


def _only_partition(response: ProduceResponse, partition: int) -> PartitionProduceResponse | None:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.index == partition:
                return answer
    return None
