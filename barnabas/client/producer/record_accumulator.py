"""Core: records between `send` and the brokers: gathered in batches by partition, drained by node.

Memory is requested between two steps: `append` returns None if it needs a new batch, the caller gets the memory,
perhaps after waiting, and calls again; the record may then fit into a batch that another task began meanwhile. Nothing
here waits or knows the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.buffer_pool import BufferPool
from barnabas.client.producer.future import FutureRecordMetadata, NewLatch
from barnabas.client.producer.memory_records_builder import (
    BatchFormat,
    CompressionRatioEstimator,
    MemoryRecordsBuilder,
    ProducerId,
)
from barnabas.client.producer.partition_queue import PartitionQueue, QueueSettings
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.layout import Fields

LeaderOf = Callable[[TopicPartition], int | None]
"""The node that leads a partition; None if it is unknown."""


_new: Any = tuple.__new__  # skips the Python-level constructor of named tuples


class RecordAppendResult(NamedTuple):
    """Result of `append`."""

    future: FutureRecordMetadata
    batch_is_full: bool
    new_batch_created: bool
    appended_bytes: int

    @property
    def wakes_sender(self) -> bool:
        return self.batch_is_full or self.new_batch_created


@dataclass(slots=True)
class ReadyCheckResult:
    """Result of `ready`."""

    ready: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    """Partitions with a batch that may be sent now, by node."""
    next_check_ms: int | None = None
    """When to check again if nothing else happens."""
    unknown_leader_topics: dict[str, None] = field(default_factory=dict)
    without_producer: list[PartitionQueue] = field(default_factory=list)
    """Queues that have records and no producer id."""


class BatchListener(Protocol):
    """Called by `RecordAccumulator` for batches that end or are split."""

    def decided(self, batch: ProducerBatch) -> None: ...
    def split(self, batch: ProducerBatch) -> None: ...


class RecordAccumulator:
    """The accumulator of one producer."""

    def __init__(
        self,
        batch_format: BatchFormat,
        queue_settings: QueueSettings,
        pool: BufferPool,
        new_latch: NewLatch,
        listener: BatchListener,
    ) -> None:
        self.pool = pool
        self.ratios = CompressionRatioEstimator()
        self.closing = False
        """Batches are sent at once, and no more records are accepted."""
        self.completing = False
        """A transaction ends: batches are sent at once."""
        self._format = batch_format
        self._queue_settings = queue_settings
        self._new_latch = new_latch
        self._listener = listener
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        """Queues that have records: no others are ever checked."""
        self._incomplete: dict[ProducerBatch, None] = {}
        self._flushes = 0
        self._turns = 0

    # ---- filling

    def append(
        self, partition: TopicPartition, record: Fields, now_ms: int, allocated_bytes: int = 0
    ) -> RecordAppendResult | None:
        """Append a record to the last batch of its partition. None if it needs a new batch: then take
        `new_batch_bytes(record)` from the pool and call again with them; unused bytes return to the pool. Without them
        `now_ms` is ignored.
        """
        queue = self._queues.get(partition)
        if queue is None:
            queue = self.queue(partition)
        last = queue.last
        if last is not None:
            appended = last.try_append(record)
            if appended is not None:
                if allocated_bytes:
                    self.pool.deallocate(allocated_bytes)
                made: RecordAppendResult = _new(RecordAppendResult, (appended[0], last.is_full, False, appended[1]))
                return made
        if not allocated_bytes:
            return None
        ratio = self.ratios.estimation(partition.topic, self._format.codec)
        batch = ProducerBatch(partition, MemoryRecordsBuilder(self._format, ratio), now_ms, self._new_latch)
        appended = batch.try_append(record)
        assert appended is not None, "the first record has room"
        batch.allocated_bytes = allocated_bytes
        queue.open(batch)
        self._busy[partition] = queue
        self._incomplete[batch] = None
        return RecordAppendResult(appended[0], last is not None or batch.is_full, True, appended[1])

    def new_batch_bytes(self, record: Fields) -> int:
        """Bytes that a batch beginning with `record` takes from the pool."""
        return max(self._format.write_limit_bytes, record_bytes_bound(record))

    def all_batches_full(self, partition: TopicPartition) -> bool:
        """Whether the next record begins a batch anyway."""
        queue = self._queues.get(partition)
        return queue is None or queue.last is None or queue.last.is_full

    def queue_size(self, partition: TopicPartition) -> int:
        """Number of batches that wait for that partition."""
        queue = self._busy.get(partition)
        return 0 if queue is None else queue.size

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = PartitionQueue(partition, self._queue_settings, self._split, self._decided)
            self._queues[partition] = queue
        return queue

    # ---- sending

    @property
    def urgent(self) -> bool:
        """Nobody lingers: memory is short, or a caller waits for all batches."""
        return self.pool.queued > 0 or self.closing or self.completing or self._flushes > 0

    @property
    def is_empty(self) -> bool:
        """Nothing waits, and nothing is in flight."""
        return all(queue.idle for queue in self._busy.values())

    def ready(self, leader_of: LeaderOf, now_ms: int) -> ReadyCheckResult:
        """Expire old batches, and return the nodes that can be sent something, and what is missing for others."""
        result = ReadyCheckResult()
        urgent, wake_at_ms = self.urgent, []
        for queue in list(self._busy.values()):
            queue.expire(now_ms)
            if queue.idle:
                del self._busy[queue.partition]
                continue
            at_ms = queue.wake_at_ms()
            if self._queue_settings.idempotent and queue.producer is None:
                # Without a producer id no batch can be sent; only a delivery timeout can happen.
                result.without_producer.append(queue)
            elif queue.next_to_send(now_ms, urgent=urgent) is not None:
                node_id = leader_of(queue.partition)
                if node_id is None:
                    result.unknown_leader_topics[queue.partition.topic] = None
                else:
                    result.ready.setdefault(node_id, []).append(queue)
            if at_ms is not None and at_ms > now_ms:
                wake_at_ms.append(at_ms)
        result.next_check_ms = min(wake_at_ms, default=None)
        return result

    def drain(self, queues: Iterable[PartitionQueue], max_size_bytes: int, now_ms: int) -> list[ProducerBatch]:
        """Batches for one request to the node that leads `queues`: one for each partition, longest waiting first, up to
        max.request.size; at least one.
        """
        batches: list[ProducerBatch] = []
        urgent, size_bytes = self.urgent, 0
        for queue in sorted(queues, key=_turn):
            batch = queue.next_to_send(now_ms, urgent=urgent)
            if batch is None:
                continue
            if batches and size_bytes + batch.size_bytes > max_size_bytes:
                break
            first = not batch.encoded
            queue.take(batch, now_ms)
            if first and self._format.codec is not Compression.NONE:
                self.ratios.update(batch.partition.topic, self._format.codec, batch.compression_ratio)
            self._turns += 1
            queue.turn = self._turns
            size_bytes += batch.size_bytes
            batches.append(batch)
        return batches

    # ---- ending

    @property
    def incomplete(self) -> list[ProducerBatch]:
        """Undecided batches, the oldest first."""
        return list(self._incomplete)

    def begin_flush(self) -> list[ProducerBatch]:
        """Nobody lingers until `end_flush`; returns the batches to wait for."""
        self._flushes += 1
        return self.incomplete

    def end_flush(self) -> None:
        self._flushes -= 1

    def abort_incomplete(self, error: Exception) -> None:
        """Fail all undecided batches: nothing more will be sent."""
        for queue in list(self._busy.values()):
            queue.abort(error)
        self._busy.clear()

    def abort_undrained(self, error: Exception) -> None:
        """Abort the batches that are not in flight."""
        for queue in list(self._busy.values()):
            queue.abort_undrained(error)

    def renumber(self, producer: ProducerId | None) -> None:
        """Send further batches with another producer id or epoch, from sequence 0; all earlier batches have ended."""
        for queue in self._queues.values():
            queue.renumber(producer)

    def readmit(self) -> None:
        """A new transaction begins in the same epoch: partitions have to be added to it again."""
        for queue in self._queues.values():
            queue.producer = None

    def withdraw(self) -> None:
        """A new transaction begins in a new epoch: partitions have to be added to it, and count from 0."""
        self.renumber(None)

    # ---- inside

    def _decided(self, batch: ProducerBatch) -> None:
        self._incomplete.pop(batch, None)
        if batch.allocated_bytes:
            self.pool.deallocate(batch.allocated_bytes)
            batch.allocated_bytes = 0
        self._listener.decided(batch)

    def _split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split into at least two, by uncompressed size: Kafka's own client splits by batch.size only, and sends a
        batch below that size again and again.
        """
        codec = self._format.codec
        if codec is not Compression.NONE:
            self.ratios.set(batch.partition.topic, codec, max(1.0, batch.compression_ratio))
        limit_bytes = min(self._format.write_limit_bytes, BATCH_HEADER_BYTES + batch.uncompressed_bytes // 2)
        part_format = BatchFormat(limit_bytes, codec, self._format.level, self._format.transactional)
        builders = [MemoryRecordsBuilder(part_format, 1.0)]
        for record in batch.records:
            if not builders[-1].try_append(record):
                builders.append(MemoryRecordsBuilder(part_format, 1.0))
                builders[-1].try_append(record)
        parts = batch.split(builders)
        parts[-1].allocated_bytes, batch.allocated_bytes = batch.allocated_bytes, 0
        del self._incomplete[batch]
        self._incomplete.update(dict.fromkeys(parts))
        self._listener.split(batch)
        return parts


def _turn(queue: PartitionQueue) -> int:
    return queue.turn


def record_bytes_bound(record: Fields) -> int:
    """Upper bound of the size of a batch with only this record, before compression."""
    _, _, key, value, headers = record
    size = BATCH_HEADER_BYTES + 36 + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + len(name.encode("utf-8", "surrogateescape")) + len(content or b"")
    return size
