"""The first half of `send`: interceptors, serializers, the choice of a partition, memory, and a place in a batch.

It waits for the topic's metadata and for memory, never for a broker to take a record. It may be cancelled in any of
these waits: between two of them nothing is left half done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial as bind
from typing import Any, NamedTuple

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.errors import BufferExhaustedException, IllegalStateException
from barnabas.client.interceptors import ProducerInterceptors, ProducerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.future import FutureRecordMetadata
from barnabas.client.producer.metrics import ProducerMetrics
from barnabas.client.producer.partitioner import StickyPartitioner, partition_for_key
from barnabas.client.producer.record_accumulator import RecordAccumulator, RecordAppendResult, record_bytes_bound
from barnabas.client.producer.record_metadata import RecordMetadata
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.settings import ProducerSettings
from barnabas.client.producer.unplaced_records import UnplacedRecord, UnplacedRecords
from barnabas.client.schema_needed import SchemaNeeded
from barnabas.client.serialization import serializer_of
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.layout import Fields

Headers = Sequence[tuple[str, bytes | None]]

Choices = Callable[[], list[tuple[int, int]]]
"""Returns (partition, number of batches that wait for it)."""

_new: Any = tuple.__new__  # skips the Python-level constructor of named tuples


EMPTY: Fields = (0, 0, None, None, ())


class Outgoing(NamedTuple):
    """A serialized record."""

    topic: str
    partition: int | None
    """None: the current partition of the sticky partitioner."""
    record: Fields


class RecordAppender:
    """The appender of one producer. Any number of tasks may use it at once."""

    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        metrics: ProducerMetrics,
        check_open: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`check_open` raises if nothing may be sent now; `on_failed` is called for accepted records that found no
        partition. ConfigException for invalid serializers."""
        self._settings = settings
        self._accumulator = accumulator
        self._pool = accumulator.pool
        self._metrics = metrics
        self._check_open = check_open
        self._serialize_key = settings.serializer("key", settings.key_serializer)
        self._serialize_value = settings.serializer("value", settings.value_serializer)
        self._bytes_keys = self._serialize_key == serializer_of("bytes", "key_serializer")
        self._bytes_values = self._serialize_value == serializer_of("bytes", "value_serializer")
        """Bytes need no serializer."""
        self._interceptors = ProducerInterceptors(settings.interceptors)
        self._is_intercepted = bool(self._interceptors)
        self._partitioner = settings.partitioner_class
        self._largest_bytes = min(settings.max_request_size, settings.buffer_memory)
        self._surely_small_bytes = self._largest_bytes - record_bytes_bound(EMPTY)
        """A record with at most this many bytes in key and value, and without headers, is not too large."""
        self._unplaced = UnplacedRecords(trio.Event, on_failed)
        self._sticky: dict[str, tuple[StickyPartitioner, Choices]] = {}
        """By topic, with the function that lists the partitions to choose from."""
        self._cluster: Cluster
        self._nursery: trio.Nursery
        self._sender: Sender
        self._now_ms: Callable[[], int]
        """Wall clock."""

    def open(self, cluster: Cluster, nursery: trio.Nursery, sender: Sender) -> None:
        """Accept records from now on."""
        self._cluster = cluster
        self._now_ms = cluster.world.wall_clock.now_ms
        self._nursery = nursery
        self._sender = sender

    def close(self, error: Exception) -> None:
        """Fail all waiting records."""
        self.abort_unplaced(error)
        self._interceptors.close()
        self._interceptors = ProducerInterceptors()
        self._is_intercepted = False

    @property
    def unplaced(self) -> list[UnplacedRecord]:
        """Accepted records that are in no batch yet."""
        return self._unplaced.all

    def abort_unplaced(self, error: Exception) -> None:
        for unplaced in self._unplaced.abort(error):
            self._release(unplaced)

    # ---- entry points

    def prepare(
        self, topic: str, value: Any, key: Any, headers: Headers, partition: int | None, timestamp_ms: int | None
    ) -> Outgoing:
        """Run interceptors and serializers. Raises the error of the record, or of the producer's state; `SchemaNeeded`
        for `prepare_later`."""
        self._check_open()
        if not self._is_intercepted:
            try:
                return self._serialized(topic, value, key, headers, partition, timestamp_ms)
            except SchemaNeeded as needed:
                needed.again = bind(self._serialized, topic, value, key, headers, partition, timestamp_ms)
                raise
        seen = self._interceptors.on_send(ProducerRecord(topic, value, key, tuple(headers), partition, timestamp_ms))
        given = seen.topic, seen.value, seen.key, seen.headers, seen.partition, seen.timestamp_ms
        return self._reported(seen, bind(self._serialized, *given))

    async def prepare_later(self, needed: SchemaNeeded) -> Outgoing:
        """Look up the schema, and prepare the record again. Raises as `prepare`."""
        while True:
            await self._cluster.world.run_blocking(needed.look_up)
            self._check_open()
            try:
                outgoing: Outgoing = needed.again()
            except SchemaNeeded as another:  # that of the value, after that of the key
                another.again = needed.again
                needed = another
            else:
                return outgoing

    def _reported(self, seen: ProducerRecord, serialize: Callable[[], Outgoing]) -> Outgoing:
        """Serialize a record; interceptors are called for a refused one, too."""
        try:
            return serialize()
        except SchemaNeeded as needed:
            needed.again = bind(self._reported, seen, serialize)
            raise
        except Exception as error:  # reported to interceptors and raised again
            self._report_refused(seen.topic, seen.partition, error)
            raise

    def append_at_once(self, outgoing: Outgoing) -> RecordAppendResult | None:
        """Append to a batch if that needs no waiting, as for nearly all records. If the result wakes the sender, the
        caller calls `let_sender_run`; None means `enqueue`."""
        topic, partition, record = outgoing
        view = self._cluster.topics.get(topic)
        if view is None or self._partitioner is not None or self._unplaced.has_line(topic):
            return None
        leaders = view.leaders
        if partition is None:
            if not leaders:
                return None
            key = record[2]
            if key is not None and not self._settings.partitioner_ignore_keys:
                outgoing = _new(Outgoing, (topic, partition_for_key(key, len(leaders)), record))
        elif partition not in leaders:
            return None
        try:
            result = self._append_now(outgoing)
        except Exception as error:  # reported to interceptors and raised again
            self._report_refused(topic, partition, error)
            raise
        if result is not None and self._is_intercepted:
            self._intercepted(result.future)
        return result

    def notify_sender(self, result: RecordAppendResult) -> None:
        """A batch is full, or has its first record."""
        self._sender.appended(result)

    async def let_sender_run(self, result: RecordAppendResult) -> None:
        """Notify the sender and let other tasks run, for callers that send in an endless loop."""
        if self._sender.appended(result):
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def enqueue(self, outgoing: Outgoing) -> FutureRecordMetadata:
        """Append to a batch; waits for max.block.ms at most."""
        try:
            return await self._enqueue(outgoing)
        except Exception as error:  # reported to interceptors and raised again
            self._report_refused(outgoing.topic, outgoing.partition, error)
            raise

    def enqueue_now(self, outgoing: Outgoing) -> FutureRecordMetadata:
        """Append to a batch, or to the queue of records whose topic is unknown, without waiting."""
        try:
            return self._enqueue_now(outgoing)
        except Exception as error:  # reported to interceptors and raised again
            self._report_refused(outgoing.topic, outgoing.partition, error)
            raise

    async def _enqueue(self, outgoing: Outgoing) -> FutureRecordMetadata:
        topic = outgoing.topic
        deadline_ms = self._cluster.now_ms() + self._settings.max_block_ms
        if self._unplaced.has_line(topic):
            return await self._stand_in_line(outgoing, deadline_ms)
        if not self._is_known(outgoing):
            await self._learn_place(outgoing, deadline_ms)
            self._check_open()
            if self._unplaced.has_line(topic):
                return await self._stand_in_line(outgoing, deadline_ms)
        result = await self._append(self._placed(outgoing), deadline_ms, self._check_open)
        self._intercepted(result.future)
        if result.wakes_sender:
            await self.let_sender_run(result)
        return result.future

    def _enqueue_now(self, outgoing: Outgoing) -> FutureRecordMetadata:
        if self._unplaced.has_line(outgoing.topic) or not self._is_known(outgoing):
            bound = record_bytes_bound(outgoing.record)
            if not self._pool.try_allocate(bound):
                raise self._exhausted(bound)
            unplaced = self._line_up(outgoing, self._cluster.now_ms() + self._settings.max_block_ms)
            return self._intercepted(unplaced.future)
        outgoing = self._placed(outgoing)
        result = self._append_now(outgoing)
        if result is None:
            raise self._exhausted(self._accumulator.new_batch_bytes(outgoing.record))
        future = self._intercepted(result.future)
        if result.wakes_sender:
            self._sender.appended(result)
        return future

    # ---- interceptors and serializers

    def _serialized(
        self, topic: str, value: Any, key: Any, headers: Headers, partition: int | None, timestamp_ms: int | None
    ) -> Outgoing:
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        elif not 0 <= timestamp_ms < 2**63:
            raise ValueError(f"timestamp_ms must be milliseconds since 1970, at least 0; got {timestamp_ms}")
        if partition is not None and partition < 0:
            raise ValueError(f"partition must be at least 0; got {partition}")
        key_bytes = key
        if key is not None or not self._bytes_keys:
            key_bytes = self._serialize_key(topic, headers, key)
        value_bytes = value
        if type(value) is not bytes or not self._bytes_values:
            value_bytes = self._serialize_value(topic, headers, value)
        record: Fields = (0, timestamp_ms, key_bytes, value_bytes, _checked(headers) if headers else ())
        content_bytes = (0 if key_bytes is None else len(key_bytes)) + (0 if value_bytes is None else len(value_bytes))
        if headers or content_bytes > self._surely_small_bytes:
            self._check_size(record)
        outgoing: Outgoing = _new(Outgoing, (topic, partition, record))
        return outgoing

    def _check_size(self, record: Fields) -> None:
        bound = record_bytes_bound(record)
        if bound > self._largest_bytes:
            limit = "max_request_size" if bound > self._settings.max_request_size else "buffer_memory"
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the record must fit into {limit}, {self._largest_bytes} bytes; got {bound} bytes",
            )

    def _intercepted(self, future: FutureRecordMetadata) -> FutureRecordMetadata:
        if self._is_intercepted:
            future.callback = self._interceptors.on_acknowledgement
        return future

    def _report_refused(self, topic: str, partition: int | None, error: Exception) -> None:
        """Interceptors are called for refused records, too."""
        if self._interceptors:
            place = -1 if partition is None else partition
            self._interceptors.on_acknowledgement(RecordMetadata(topic, place, -1, -1), error)

    # ---- a partition

    def _is_known(self, outgoing: Outgoing) -> bool:
        """Whether the topic has partitions, and the requested one."""
        view = self._cluster.topics.get(outgoing.topic)
        if view is None or not view.leaders:
            return False
        return outgoing.partition is None or outgoing.partition in view.leaders

    async def _learn_place(self, outgoing: Outgoing, deadline_ms: int) -> None:
        """Wait for the topic's metadata. Refreshes it if the requested partition may be new."""
        cluster, topic, partition = self._cluster, outgoing.topic, outgoing.partition
        count = await cluster.partitions_count(topic, max(0, deadline_ms - cluster.now_ms()))
        if partition is not None and partition not in cluster.topics[topic].leaders:
            with trio.move_on_after(max(1, deadline_ms - cluster.now_ms()) / 1000):
                await cluster.refresh([topic])
            if partition not in cluster.topics[topic].leaders:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise KafkaError(
                    code, f"partition must be one of the {count} partitions of topic {topic}; got {partition}"
                )

    def _placed(self, outgoing: Outgoing) -> Outgoing:
        """The record with its partition; still without one if the sticky partitioner chooses."""
        topic, partition, record = outgoing
        if partition is not None:
            return outgoing
        if self._partitioner is not None:
            return Outgoing(topic, self._ask_partitioner(topic, record), record)
        key = record[2]
        if key is not None and not self._settings.partitioner_ignore_keys:
            return Outgoing(topic, partition_for_key(key, len(self._cluster.topics[topic].leaders)), record)
        return outgoing

    def _ask_partitioner(self, topic: str, record: Fields) -> int:
        _, _, key, value, _ = record
        partitions = sorted(self._cluster.topics[topic].leaders)
        available = [each for each in partitions if self._leader_of(TopicPartition(topic, each)) is not None]
        chosen = self._partitioner(topic, key, value, partitions, available)
        if chosen not in self._cluster.topics[topic].leaders:
            raise ValueError(
                f"the partitioner must return one of the {len(partitions)} partitions of topic {topic}; got {chosen!r}"
            )
        partition: int = chosen
        return partition

    def _sticky_of(self, topic: str) -> tuple[StickyPartitioner, Choices]:
        found = self._sticky.get(topic)
        if found is None:
            partitioner = StickyPartitioner(self._settings.batch_size, self._cluster.world.chance)
            found = self._sticky[topic] = (partitioner, bind(self._choices, topic))
        return found

    def _choices(self, topic: str) -> list[tuple[int, int]]:
        """Available partitions with the number of waiting batches; if there are none, all partitions."""
        adaptive = self._settings.partitioner_adaptive_partitioning_enable
        led, taking = [], []
        partitions = list(self._cluster.topics[topic].leaders)
        for index in partitions:
            place = TopicPartition(topic, index)
            leader = self._leader_of(place)
            if leader is not None:
                choice = (index, self._accumulator.queue_size(place) if adaptive else 0)
                led.append(choice)
                if not adaptive or self._sender.is_available(leader):
                    taking.append(choice)
        return taking or led or [(index, 0) for index in partitions]

    def _leader_of(self, partition: TopicPartition) -> int | None:
        leadership = self._cluster.leadership(partition)
        return None if leadership is None else leadership.node_id

    # ---- memory

    async def _append(self, outgoing: Outgoing, deadline_ms: int, check: Callable[[], None]) -> RecordAppendResult:
        """Append to a batch, once there is memory; `check` then raises if the record is no longer wanted."""
        result = self._append_now(outgoing)
        while result is None:
            # Another task may begin a batch while this one waits for memory: the record then goes there.
            allocated_bytes = self._accumulator.new_batch_bytes(outgoing.record)
            await self._wait_for_memory(allocated_bytes, deadline_ms)
            try:
                check()
            except BaseException:
                self._pool.deallocate(allocated_bytes)
                raise
            result = self._append_now(outgoing, allocated_bytes)
        return result

    def _append_now(self, outgoing: Outgoing, allocated_bytes: int = 0) -> RecordAppendResult | None:
        accumulator = self._accumulator
        topic, partition, record = outgoing
        sticky: StickyPartitioner | None = None
        if partition is None:
            sticky, choices = self._sticky_of(topic)
            partition = sticky.current(choices)
        place: TopicPartition = _new(TopicPartition, (topic, partition))
        # The time is only needed where a batch may begin.
        result = accumulator.append(place, record, self._cluster.now_ms() if allocated_bytes else 0, allocated_bytes)
        if result is None:
            allocated_bytes = accumulator.new_batch_bytes(record)
            if not self._pool.try_allocate(allocated_bytes):
                return None
            result = accumulator.append(place, record, self._cluster.now_ms(), allocated_bytes)
            assert result is not None, "with memory there is room"
        if sticky is not None:
            full = accumulator.all_batches_full(place) if result.new_batch_created else result.batch_is_full
            sticky.appended(partition, result.appended_bytes, choices, batch_is_full=full)
        return result

    async def _wait_for_memory(self, size_bytes: int, deadline_ms: int) -> None:
        """Take `size_bytes` from the pool; BufferExhaustedException if they are not free by `deadline_ms`."""
        granted = trio.Event()
        began_ms = self._cluster.now_ms()
        waiter = self._pool.wait(size_bytes, granted.set)
        try:
            self._sender.wake()  # batches stop lingering while memory is short
            with trio.move_on_after(max(0, deadline_ms - began_ms) / 1000):
                await granted.wait()
                self._metrics.measure("bufferpool-wait-time", self._cluster.now_ms() - began_ms, began_ms)
                return
        except BaseException:
            self._pool.cancel(waiter)
            raise
        self._pool.cancel(waiter)
        raise self._exhausted(size_bytes)

    def _exhausted(self, size_bytes: int) -> BufferExhaustedException:
        self._metrics.count("buffer-exhausted-total")
        return BufferExhaustedException(f"buffer_memory is full: no {size_bytes} bytes were free within max_block_ms")

    # ---- topics without metadata

    def _line_up(self, outgoing: Outgoing, deadline_ms: int) -> UnplacedRecord:
        unplaced, line = self._unplaced.add(outgoing.topic, outgoing.partition, outgoing.record, deadline_ms)
        if line is not None:
            self._nursery.start_soon(self._unplaced.serve, outgoing.topic, line, self._place)
        return unplaced

    async def _stand_in_line(self, outgoing: Outgoing, deadline_ms: int) -> FutureRecordMetadata:
        """Wait behind earlier records of the topic until this one is in a batch."""
        await self._wait_for_memory(record_bytes_bound(outgoing.record), deadline_ms)
        unplaced = self._line_up(outgoing, deadline_ms)
        try:
            await unplaced.result.wait()
        except BaseException:
            unplaced.fail(IllegalStateException("the send was cancelled"))
            self._release(unplaced)
            raise
        if unplaced.result.error is not None:
            raise unplaced.result.error
        return self._intercepted(unplaced.future)

    async def _place(self, unplaced: UnplacedRecord) -> None:
        def check() -> None:
            if unplaced.result.done:
                raise IllegalStateException("the send was cancelled")

        outgoing = Outgoing(unplaced.topic, unplaced.partition, unplaced.record)
        try:
            check()
            await self._learn_place(outgoing, unplaced.deadline_ms)
            check()
        finally:
            self._release(unplaced)
        result = await self._append(self._placed(outgoing), unplaced.deadline_ms, check)
        unplaced.placed(result.future)
        self._sender.wake()

    def _release(self, unplaced: UnplacedRecord) -> None:
        reserved_bytes, unplaced.reserved_bytes = unplaced.reserved_bytes, 0
        if reserved_bytes:
            self._pool.deallocate(reserved_bytes)


def _checked(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    """Copies of the headers. TypeError or UnicodeEncodeError if they cannot be written."""
    checked = []
    for name, content in headers:
        if not isinstance(name, str) or not isinstance(content, bytes | bytearray | memoryview | None):
            raise TypeError(f"a header must be (str, bytes or None); got ({name!r}, {content!r})")
        name.encode("utf-8", "surrogateescape")
        checked.append((name, bytes(content) if isinstance(content, bytearray | memoryview) else content))
    return tuple(checked)
